"""Configurations of OmegaConf converted to data, and back.

Interpolations are kept as text, and nothing is resolved; flags and names of structured classes are kept too. A live
configuration and its record in a pickle have the same attributes, so that one conversion serves both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tensorkeep.errors import FormatError, LimitError, MissingDependencyError, TensorkeepError
from tensorkeep.formats.pickles import Unknown
from tensorkeep.limits import MAX_STATE_DEPTH
from tensorkeep.state import NamedData

_DICT: Final = "omegaconf.dictconfig:DictConfig"
_LIST: Final = "omegaconf.listconfig:ListConfig"
_TUPLE: Final = "omegaconf.tupleconfig:TupleConfig"

CONFIGS: Final = frozenset({_DICT, _LIST, _TUPLE})
"""Class names of configurations."""

_ANY_NODE: Final = "omegaconf.nodes:AnyNode"
_PATH_NODE: Final = "omegaconf.nodes:PathNode"
_UNION_NODE: Final = "omegaconf.base:UnionNode"
_UNTYPED: Final = frozenset({"builtins:dict", "builtins:list", "builtins:tuple", "builtins:NoneType", "typing:Any"})
_MAX_NODES: Final = 100_000
"""Most values in one configuration; OmegaConf takes a few seconds for this many."""

_TYPES: Final = {
    "builtins:int": int,
    "builtins:float": float,
    "builtins:str": str,
    "builtins:bool": bool,
    "builtins:bytes": bytes,
    "pathlib:Path": Path,
}
"""Types of elements and keys that can be restored."""


class _NotDataError(Exception):
    """Part of a configuration cannot be converted to data, or back."""


class _Node:
    """A node of a configuration, or its record in a pickle.

    Attributes:
        kind: Name of its class.
        content: The nodes in a container, or an interpolation or None in their place; the value of another node.
        metadata: Its types, flags and key, by name.
        parent: The node that contains it; None for the root.
    """

    def __init__(self, node: Any) -> None:
        attributes = _attributes_of(node)
        self.kind = f"{node.module}:{node.name}" if isinstance(node, Unknown) else _qualified_name(type(node))
        self.content = attributes["_content"] if "_content" in attributes else attributes["_val"]
        self.metadata = _attributes_of(attributes["_metadata"])
        self.parent = attributes["_parent"]

    @property
    def structured_class(self) -> str | None:
        """Name of the dataclass that it was created from, or None."""
        name = _name_of(self.metadata["object_type"])
        return None if name is None or name in _UNTYPED else name

    @property
    def flags(self) -> dict[str, bool]:
        return dict(self.metadata["flags"] or {})

    def types(self) -> Iterator[tuple[str, Any]]:
        """Yield the declared types of a container's keys and elements."""
        for name in ("key_type", "element_type") if self.kind == _DICT else ("element_type",):
            declared = self.metadata.get(name)
            if declared is not None and _name_of(declared) != "typing:Any":
                yield name, declared


def config_as_data(config: Any, as_data: Callable[[Any], Any]) -> NamedData | None:
    """Convert a configuration, or a part of one, to data; None if that is not possible."""
    try:
        node = _Node(config)
        if node.parent is None:
            return _Description(as_data).container(node, is_typed=False)
        keys = [node.metadata["key"]]
        root, above = node.parent, _Node(node.parent)
        while above.parent is not None:
            if len(keys) > MAX_STATE_DEPTH:
                return None
            keys.append(above.metadata["key"])
            root, above = above.parent, _Node(above.parent)
        whole = as_data(root)
    except (_NotDataError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    path = [key for key in reversed(keys) if key is not None]
    return NamedData("dataclass", node.kind, {"root": whole, "path": path}) if isinstance(whole, NamedData) else None


class _Description:
    """The conversion of one configuration to data."""

    def __init__(self, as_data: Callable[[Any], Any]) -> None:
        self._as_data = as_data
        self._n_left = _MAX_NODES

    def container(self, node: _Node, *, is_typed: bool) -> NamedData:
        """Convert a container; the class of a structured one gives the types of all containers in it."""
        fields: dict[str, Any] = {}
        if node.structured_class is not None:
            fields["class"] = node.structured_class
            is_typed = True
        for name, declared in node.types():
            if _name_of(declared) in _TYPES:
                fields[name] = _name_of(declared)
            elif not is_typed:
                raise _NotDataError(name)
        if node.flags:
            fields["flags"] = node.flags
        is_typed |= "element_type" in fields
        fields["content"] = self._content(node.content, is_typed=is_typed)
        return NamedData("dataclass", node.kind, fields)

    def _content(self, content: Any, *, is_typed: bool) -> Any:
        if isinstance(content, dict):
            return {key: self._item(_Node(child), is_typed=is_typed) for key, child in content.items()}
        if isinstance(content, list | tuple):
            return [self._item(_Node(child), is_typed=is_typed) for child in content]
        return content

    def _item(self, node: _Node, *, is_typed: bool) -> Any:
        self._n_left = _counted(self._n_left)
        if node.kind in CONFIGS:
            return self.container(node, is_typed=is_typed)
        if node.kind == _UNION_NODE:
            node = _Node(node.content)
        elif node.flags:
            raise _NotDataError("flags of a value")
        if node.kind != _ANY_NODE and not is_typed:
            raise _NotDataError("the type of a value")
        if node.kind == _PATH_NODE and isinstance(node.content, str) and not _is_special(node.content):
            return self._as_data(Path(node.content))  # paths in pickles are read as text
        return self._as_data(node.content)


def _attributes_of(value: Any) -> Mapping[str, Any]:
    attributes: Mapping[str, Any] = value.state if isinstance(value, Unknown) else vars(value)
    return attributes


def _counted(n_left: int) -> int:
    """Count a node: containers that share parts could otherwise take exponential time and memory."""
    if not n_left:
        raise LimitError("a configuration of OmegaConf has too many values", expected=f"at most {_MAX_NODES:,}")
    return n_left - 1


def _is_special(text: str) -> bool:
    return text == "???" or "${" in text


def _qualified_name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _name_of(cls: Any) -> str | None:
    """Return the name of a class, or of its record in a pickle; None for anything else."""
    if isinstance(cls, Unknown):
        return f"{cls.module}:{cls.name}" if cls.is_reference else None
    if cls is Any:
        return "typing:Any"
    return _qualified_name(cls) if isinstance(cls, type) else None


def config_from_data(
    data: NamedData, from_data: Callable[[Any], Any], find_class: Callable[[str], type | None]
) -> Any | None:
    """Convert data to a configuration; None if it needs a class that is not available."""
    try:
        import omegaconf
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "the checkpoint has a configuration of OmegaConf, which is not installed", hint="pip install omegaconf"
        ) from error
    try:
        if "root" in data.fields:
            return _part(from_data(data.fields["root"]), data.fields["path"])
        return _Restoration(from_data, find_class).config(data)
    except _NotDataError:
        return None
    except TensorkeepError:
        raise
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        AssertionError,
        omegaconf.errors.OmegaConfBaseException,
    ) as cause:
        raise FormatError("a configuration of OmegaConf cannot be restored", found=str(cause)) from cause


def _part(whole: Any, keys: list[Any]) -> Any:
    if isinstance(whole, NamedData):
        raise _NotDataError("the whole")
    for key in keys:
        whole = whole._get_node(key)
    return whole


class _Restoration:
    """The conversion of data to one configuration."""

    def __init__(self, from_data: Callable[[Any], Any], find_class: Callable[[str], type | None]) -> None:
        self._from_data = from_data
        self._find_class = find_class
        self._n_left = _MAX_NODES

    def config(self, data: NamedData) -> Any:
        import omegaconf

        made = self._filled(data, data.fields["content"])
        for flag, value in data.fields.get("flags", {}).items():
            made._set_flag(flag, value)
        if not isinstance(made, omegaconf.Container):
            raise TypeError(data.class_name)
        return made

    def _filled(self, data: NamedData, content: Any) -> Any:
        import omegaconf

        made = self._empty(data, content)
        if not isinstance(content, dict | list) or data.class_name == _TUPLE:
            return made
        names = [
            "readonly",
            "struct",
            "no_deepcopy_set_nodes",
        ]  # items were created for this container: allow changes, and do not copy
        with omegaconf.flag_override(made, names, [False, False, True]):
            if isinstance(content, dict):
                for key, item in content.items():
                    made[key] = self._item(item)
            else:
                for item in content:
                    made.append(self._item(item))
        return made

    def _empty(self, data: NamedData, content: Any) -> Any:
        """Create an empty container, or a full one of a kind that cannot be filled later."""
        import omegaconf

        options: dict[str, Any] = {
            name: _TYPES[data.fields[name]] for name in ("key_type", "element_type") if name in data.fields
        }
        if data.fields.get("flags", {}).get("allow_objects"):
            options["flags"] = {"allow_objects": True}
        if "class" in data.fields:
            cls = self._find_class(data.fields["class"])
            if cls is None:
                raise _NotDataError(data.fields["class"])
            return omegaconf.OmegaConf.structured(cls, flags=options.get("flags"))
        if data.class_name == _TUPLE:
            items = tuple(map(self._item, content)) if isinstance(content, list) else content
            return omegaconf.TupleConfig(items, **options)
        make: Any = omegaconf.DictConfig if data.class_name == _DICT else omegaconf.ListConfig
        return make(type(content)() if isinstance(content, dict | list) else content, **options)

    def _item(self, item: Any) -> Any:
        self._n_left = _counted(self._n_left)
        if isinstance(item, NamedData) and item.class_name in CONFIGS:
            return self.config(item)
        made = self._from_data(item)
        if isinstance(made, NamedData):
            raise _NotDataError(made.class_name)
        return made
