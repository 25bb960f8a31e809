"""Checkpoints that Lightning itself pickled, read without running anything.

Known objects become the same data that `_values` converts live ones to; all others are refused by name.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from enum import Enum
from types import SimpleNamespace
from typing import Any, Final

from tensorkeep.arrays import decode_object, encode_object, plain_library
from tensorkeep.errors import FormatError, StateError, UnsupportedError
from tensorkeep.formats.pickles import DICTS, LISTS, Unknown
from tensorkeep.formats.pickles import Namespace as PickledNamespace
from tensorkeep.integrations.lightning._configs import CONFIGS, config_as_data
from tensorkeep.integrations.lightning._library import named_class
from tensorkeep.integrations.lightning._values import ATTRIBUTE_DICTS, class_as_data, is_known_class
from tensorkeep.kinds.pickles import PickleFile, key_text
from tensorkeep.scanner import scan
from tensorkeep.state import NamedData, decode_tree, encode_tree, joined
from tensorkeep.texts import listed

_LEFT_OUT: Final = object()
"""Marks an unknown object until its container leaves it out."""

_SETS: Final = frozenset({set, frozenset})
_NAMESPACES: Final = {"argparse.Namespace": Namespace, "types.SimpleNamespace": SimpleNamespace}
_HYPER_PARAMETERS: Final = frozenset({"hyper_parameters", "datamodule_hyper_parameters"})
"""Places where Lightning accepts any kind of dict."""


def read_pickled(file: PickleFile, classes: Mapping[str, type], *, drop_unknown: bool) -> Any:
    """Load the value of a pickle."""
    reading = _Reading(file, classes)
    value = reading.value(file.document.value, file.load_tree(), "")
    if reading.unknown and not drop_unknown:
        raise UnsupportedError(
            "the checkpoint holds objects that are not known to be data",
            path=file.path,
            found=listed(f"`{where}` ({name})" for where, name in reading.unknown.items()),
            hint="Nothing was run. Pass dataclasses, enums and named tuples that may be created in classes=; or leave"
            " unknown objects out with drop_unknown=True",
        )
    return None if value is _LEFT_OUT else value


class _Reading:
    """One walk through the records of a pickle and, in parallel, the values loaded from them."""

    def __init__(self, file: PickleFile, classes: Mapping[str, type]) -> None:
        self._file = file
        self._classes = classes
        self._made: dict[int, tuple[Any, Any]] = {}
        self._namespace: str | None = None
        self.unknown: dict[str, str] = {}

    def value(self, node: Any, loaded: Any, path: str) -> Any:
        """Return the loaded value of a node of the pickle, with known objects converted to data."""
        kind = type(node)
        if not (kind in DICTS or kind in LISTS or isinstance(node, Unknown)):
            return loaded
        known = self._made.get(id(loaded))
        if known is not None:
            return known[1]
        self._made[id(loaded)] = loaded, loaded
        if kind in DICTS:
            made = self._dict(node, loaded, path)
        elif kind in _SETS:
            made = kind(member for member in loaded if self._is_known_member(member, path))
        elif kind in LISTS:
            made = self._sequence(node, loaded, path)
        else:
            made = self._object(loaded, path)
        self._made[id(loaded)] = loaded, made
        return made

    def _dict(self, node: dict[Any, Any], loaded: dict[Any, Any], path: str) -> Any:
        items: dict[Any, Any] = {}
        for child, (key, item) in zip(node.values(), list(loaded.items()), strict=True):
            own = joined(path, key if type(key) is str else key_text(key))
            made = self.value(child, item, own)
            new_key = self._key(key, own)
            if made is not _LEFT_OUT and new_key is not _LEFT_OUT:
                items[new_key] = made
        if type(node) is PickledNamespace and path not in _HYPER_PARAMETERS:
            return self._of_namespace(items, path)
        loaded.clear()
        loaded.update(items)
        return loaded

    def _sequence(self, node: Any, loaded: Any, path: str) -> Any:
        items = []
        for place, (child, item) in enumerate(zip(node, loaded, strict=True)):
            made = self.value(child, item, joined(path, str(place)))
            items.append(None if made is _LEFT_OUT else made)
        if type(node) is tuple:
            return tuple(items)
        loaded.clear()
        loaded.extend(items)
        return loaded

    def _is_known_member(self, member: Any, path: str) -> bool:
        if isinstance(member, Unknown):
            self._unknown(member, path)
        return not isinstance(member, Unknown)

    def _key(self, key: Any, path: str) -> Any:
        """Return a key; in early versions of Lightning, keys may be classes of callbacks."""
        if not isinstance(key, Unknown):
            return key
        name = f"{key.module}:{key.name}"
        cls = self._classes.get(name) or named_class(key.module, key.name) if key.is_reference else None
        return self._unknown(key, path) if cls is None else cls

    def _of_namespace(self, items: dict[str, Any], path: str) -> Any:
        """Return the object with these attributes; only the names in the pickle, not the record, tell its class."""
        name = self._name_of_namespaces(path)
        cls = _NAMESPACES.get(name)
        if cls is None:
            return NamedData("dataclass", ":".join(name.rsplit(".", 1)), {"items": items})
        made = cls()
        vars(made).update(items)
        return made

    def _name_of_namespaces(self, path: str) -> str:
        if self._namespace is None:
            kinds = _NAMESPACES.keys() | {name.replace(":", ".") for name in ATTRIBUTE_DICTS}
            named = {name for scanned in scan(self._file.path).files for name in scanned.known_names} & kinds
            if len(named) > 1:
                raise UnsupportedError(
                    f"`{path}` is an object with attributes, and the file has several kinds of such objects",
                    path=self._file.path,
                    found=", ".join(sorted(named)),
                    hint="tensorkeep.load loads the whole file, with these objects as dicts",
                )
            self._namespace = named.pop()
        return self._namespace

    def _inner(self, loaded: Any, path: str) -> Any:
        """Return a value inside an object, for which there is no separate node."""
        made = self.value(loaded, loaded, path)
        return None if made is _LEFT_OUT else made

    def _object(self, unknown: Unknown, path: str) -> Any:
        name = f"{unknown.module}:{unknown.name}"
        if unknown.is_reference and (is_known_class(name) or name in self._classes):
            return class_as_data(name)
        data: Any = None
        if name in CONFIGS and not unknown.is_reference:
            data = config_as_data(unknown, lambda value: self._inner(value, path))
        elif name in self._classes:
            data = self._rebuilt(unknown, name, self._classes[name], path)
        return self._unknown(unknown, path) if data is None else data

    def _unknown(self, unknown: Unknown, path: str) -> Any:
        self.unknown[path] = unknown.qualified_name
        return _LEFT_OUT

    def _rebuilt(self, unknown: Unknown, name: str, cls: type, path: str) -> Any:
        """Create an object of a class that the caller passed; None if the pickle creates it in an unknown way."""
        fields = self._fields(unknown, cls, path)
        if fields is None:
            return None
        kind = "enum" if issubclass(cls, Enum) else "namedtuple" if issubclass(cls, tuple) else "dataclass"
        try:
            encoded = encode_tree(NamedData(kind, name, fields), leaf=_leaf, compose=encode_object)
        except StateError:
            return None
        return decode_tree(
            encoded.tree,
            tensor=lambda place, _: encoded.tensors[place],
            compose=lambda composed: decode_object(composed, find_class=self._classes.get),
            find_class=self._classes.get,
        )

    def _fields(self, unknown: Unknown, cls: Any, path: str) -> dict[str, Any] | None:
        args = unknown.args or ()
        if issubclass(cls, Enum) and len(args) == 1:
            value = self._inner(args[0], path)
            try:
                return {"name": cls(value)._name_, "value": value}
            except (ValueError, TypeError) as cause:
                raise FormatError(
                    f"`{path}` is not a member of {cls.__qualname__}", path=self._file.path, found=repr(value)
                ) from cause
        if issubclass(cls, tuple) and unknown.state is None and len(args) == len(getattr(cls, "_fields", ())):
            return {name: self._inner(item, path) for name, item in zip(cls._fields, args, strict=True)}
        if not args and type(unknown.state) is dict and all(type(key) is str for key in unknown.state):
            return {key: self._inner(item, joined(path, key)) for key, item in unknown.state.items()}
        return None


def _leaf(value: Any) -> dict[str, Any] | None:
    return {} if plain_library(value) else None
