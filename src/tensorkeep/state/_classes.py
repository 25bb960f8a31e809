"""Objects that consist of data and a class name: dataclasses, enum members, namedtuples.

They are rebuilt only for classes that the caller passes, and without running code of those classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cached_property
from typing import Any, NoReturn, TypeAlias

from tensorkeep.errors import FormatError, StateError
from tensorkeep.state._values import NamedData

_HEAP_TYPE = 1 << 9
"""The flag of classes defined in Python (Py_TPFLAGS_HEAPTYPE)."""

Classes: TypeAlias = Iterable[type] | Mapping[str, type]
"""Classes that may be rebuilt; a mapping gives their names in files."""


def classes_by_name(classes: Classes) -> dict[str, type]:
    """Return the classes that the caller allows, by their names in files."""
    if isinstance(classes, type) or not isinstance(classes, Iterable):
        name = classes.__name__ if isinstance(classes, type) else repr(classes)
        raise StateError(
            "`classes` must be a list of classes", found=f"{name:.100}", hint=f"Pass classes=[{name:.100}]"
        )
    pairs = dict(classes.items()) if isinstance(classes, Mapping) else {_checked_name(cls): cls for cls in classes}
    for name, cls in pairs.items():
        if not isinstance(cls, type) or type(name) is not str:
            raise StateError(
                "`classes` must be classes, or a mapping of names to classes", found=f"{name!r}: {cls!r}"
            )
    return pairs


def class_name(cls: type) -> str:
    """Return the name of a class in files."""
    return f"{cls.__module__}:{cls.__qualname__}"


def named_kind(cls: type) -> str | None:
    """Return the kind of named data that objects of a class are; None if they are not."""
    if issubclass(cls, Enum):
        return "enum"
    if issubclass(cls, tuple):
        names = getattr(cls, "_fields", None)
        return "namedtuple" if type(names) is tuple and all(type(name) is str for name in names) else None
    if dataclasses.is_dataclass(cls) and all(base.__flags__ & _HEAP_TYPE for base in cls.__mro__[:-1]):
        return "dataclass"
    return None


def fields_of(value: Any, kind: str) -> dict[str, Any]:
    """Return the fields of an object."""
    if kind == "enum":
        is_member = type(value).__members__.get(value._name_) is value
        return {"name": value._name_ if is_member else None, "value": value._value_}
    if kind == "namedtuple":
        names = value._fields
        if len(names) != len(value):
            raise StateError("a namedtuple has more or fewer items than fields", found=class_name(type(value)))
        fields = dict(zip(names, value, strict=True))
    else:
        fields = _attributes(value)
    extra = [name for name in getattr(value, "__dict__", ()) if name not in fields and not _is_cached(value, name)]
    if extra:
        raise StateError(
            f"{class_name(type(value))} has the attribute {extra[0]!r}, which is not a field",
            hint="Declare it as a field, or save what it holds as a dict",
        )
    return fields


def rebuilt(data: NamedData, cls: type) -> Any:
    """Rebuild an object of a class that the caller passed."""
    if named_kind(cls) != data.kind:
        _refuse(data, f"it is not a {data.kind}")
    try:
        return _MAKERS[data.kind](data, cls)
    except FormatError:
        raise
    except (TypeError, ValueError, AttributeError, KeyError) as cause:
        _refuse(data, repr(cause))


def _make_dataclass(data: NamedData, cls: type) -> Any:
    names = {field.name for field in dataclasses.fields(cls)}
    if names != data.fields.keys():
        _refuse(data, f"fields that differ: {sorted(names ^ data.fields.keys())}")
    made: Any = object.__new__(cls)
    for name, value in data.fields.items():
        object.__setattr__(made, name, value)
    return made


def _make_namedtuple(data: NamedData, cls: Any) -> Any:
    if list(cls._fields) != list(data.fields):
        _refuse(data, f"fields {', '.join(cls._fields)}")
    return tuple.__new__(cls, data.fields.values())


def _make_enum(data: NamedData, cls: Any) -> Any:
    name, value = data.fields["name"], data.fields["value"]
    if name is not None and name not in cls.__members__:
        _refuse(data, f"no member {name}; it has {', '.join(cls.__members__)}")
    member = cls(value) if name is None else cls.__members__[name]
    if not _is_same(member._value_, value):
        _refuse(data, f"{name} is {member._value_!r}")
    return member


_MAKERS = {"dataclass": _make_dataclass, "enum": _make_enum, "namedtuple": _make_namedtuple}


def _is_same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b or (a != a and b != b))  # noqa: PLR0124


def _refuse(data: NamedData, found: str) -> NoReturn:
    raise FormatError(
        f"the class {data.class_name} is not the one that was saved",
        found=found,
        hint="Leave it out of `classes` to load its data as tensorkeep.NamedData",
    )


def _attributes(value: Any) -> dict[str, Any]:
    fields = {}
    for field in dataclasses.fields(value):
        try:
            fields[field.name] = getattr(value, field.name)
        except AttributeError as cause:
            raise StateError(f"{class_name(type(value))}.{field.name} was never set", hint="Set it") from cause
    return fields


def _is_cached(value: Any, name: str) -> bool:
    return isinstance(getattr(type(value), name, None), cached_property)


def _checked_name(cls: Any) -> str:
    if not isinstance(cls, type):
        raise StateError("`classes` must be classes", found=repr(cls))
    return class_name(cls)
