"""`_METADATA`: the tree of a checkpoint. Pure.

Each entry is the keys that lead to one leaf, and what the leaf is. A key says whether it is of a dict or of a
sequence, so named tuples have become dicts and tuples lists, unless the checkpoint was saved with rich types: then
a second, nested text describes every container.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats.orbax._nodes import Leaf, NamedTupleNode, leaves_of
from tensorkeep.limits import MAX_STATE_DEPTH

_SEQUENCE: Final = 1
"""The type of a key that is a position; all others are keys of dicts."""

_TEXT: Final = "string"
_EMPTY: Final = ("None", "Dict", "List", "Tuple", "NamedTuple")
"""What a leaf is called if it is no value but a container without content, or None."""


class SavedTree(msgspec.Struct, frozen=True):
    """What `_METADATA` says.

    Attributes:
        tree: The tree; see `_nodes`.
        is_zarr3: Whether arrays are in version 3 of zarr, and not in version 2.
        is_complete: Whether chunks were written even if all of their elements are zero, so that none is missing.
        custom_metadata: What the user saved with it, as JSON values; None if nothing.
    """

    tree: Any
    is_zarr3: bool = False
    is_complete: bool = False
    custom_metadata: Any = None


class _Key(msgspec.Struct):
    key: str | int
    key_type: int = 2


class _Value(msgspec.Struct):
    value_type: str
    skip_deserialize: bool = False


class _Entry(msgspec.Struct):
    key_metadata: list[_Key]
    value_metadata: _Value


class _Metadata(msgspec.Struct):
    tree_metadata: dict[str, _Entry]
    use_zarr3: bool | None = False
    store_array_data_equal_to_fill_value: bool | None = False
    custom_metadata: Any = None
    value_metadata_tree: str | None = None


def parse_json(data: bytes, schema: Any = Any) -> Any:
    """Decode JSON from a file."""
    try:
        return msgspec.json.decode(data, type=schema)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError("not the JSON that orbax writes", found=str(error)) from None
    except RecursionError:
        raise LimitError("JSON is nested too deeply", expected=f"at most {MAX_STATE_DEPTH} levels") from None


def check_depth(value: Any) -> Any:
    """Return a JSON value, or refuse one that is nested too deeply for those who walk it."""
    level = [value]
    for _ in range(MAX_STATE_DEPTH):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return value
    raise LimitError("JSON is nested too deeply", expected=f"at most {MAX_STATE_DEPTH} levels", found="more")


def parse_value(data: bytes) -> Any:
    """Decode any JSON value from a file."""
    return check_depth(parse_json(data))


def parse_tree(data: bytes) -> SavedTree:
    """Parse `_METADATA`."""
    metadata: _Metadata = parse_json(data, _Metadata)
    if metadata.value_metadata_tree is not None:
        tree = _rich(parse_json(metadata.value_metadata_tree.encode()), (), 0)
    else:
        tree = _poor(list(metadata.tree_metadata.values()))
    seen: set[str] = set()
    for leaf in leaves_of(tree):
        if leaf.name in seen:
            raise FormatError("two leaves of the tree have one name", found=repr(leaf.name))
        seen.add(leaf.name)
    return SavedTree(
        tree,
        is_zarr3=bool(metadata.use_zarr3),
        is_complete=bool(metadata.store_array_data_equal_to_fill_value),
        custom_metadata=check_depth(metadata.custom_metadata),
    )


def _leaf(value: _Value, path: tuple[str, ...]) -> Any:
    """Return a leaf, or the empty container that it describes."""
    if value.value_type in _EMPTY:
        return {"Dict": {}, "List": [], "Tuple": (), "NamedTuple": ()}.get(value.value_type)
    return Leaf(".".join(path), value.value_type == _TEXT)


# With key types only


class _Branch(dict[str, Any]):
    """A container under construction.

    Attributes:
        is_sequence: Whether its keys are positions.
    """

    is_sequence = False


def _poor(entries: list[_Entry]) -> Any:
    root = _Branch()
    for entry in entries:
        path = tuple(str(key.key) for key in entry.key_metadata)
        _check_depth(len(path))
        branch = root
        for key, part in zip(entry.key_metadata, path, strict=True):
            if not branch:
                branch.is_sequence = key.key_type == _SEQUENCE
            if branch.is_sequence != (key.key_type == _SEQUENCE):
                raise FormatError("a part of the tree is both a dict and a list", found=repr(".".join(path)))
            if part is path[-1] and key is entry.key_metadata[-1]:
                break
            branch = branch.setdefault(part, _Branch())
            if type(branch) is not _Branch:
                raise FormatError("a part of the tree is both a value and a container", found=repr(".".join(path)))
        if not path:  # the tree is a single value
            return _leaf(entry.value_metadata, path) if len(entries) == 1 else _refuse_root()
        if path[-1] in branch:
            raise FormatError("two values are at one place of the tree", found=repr(".".join(path)))
        branch[path[-1]] = _leaf(entry.value_metadata, path)
    return _finished(root)


def _refuse_root() -> Any:
    raise FormatError("the tree is both a value and a container")


def _finished(value: Any) -> Any:
    if type(value) is not _Branch:
        return value
    if not value.is_sequence:
        return {key: _finished(each) for key, each in value.items()}
    if not all(key.isascii() and key.isdigit() and len(key) < 10 for key in value):
        raise FormatError("a position in a list is not a number", found=f"{list(value)[:3]!r:.100}")
    ordered = sorted(value, key=int)
    if [int(key) for key in ordered] != list(range(len(ordered))):
        raise FormatError("a list of the tree has gaps", found=f"positions {', '.join(ordered[:5])}")
    return [_finished(value[key]) for key in ordered]


# With all types


class _RichEntry(msgspec.Struct):
    key: str
    value: Any


class _Custom(msgspec.Struct):
    clazz: str
    data: _Value | None = None
    entries: list[Any] | None = None


class _NamedTuple(msgspec.Struct):
    module: str
    clazz: str
    entries: list[_RichEntry]


def _rich(node: Any, path: tuple[str, ...], depth: int) -> Any:
    _check_depth(depth)
    if type(node) is list:
        return [_rich(each, (*path, str(place)), depth + 1) for place, each in enumerate(node)]
    if type(node) is not dict:
        raise FormatError("the tree has a node of an unknown kind", found=f"{node!r:.100}")
    category = node.get("category")
    if category == "custom":
        return _custom(_converted(node, _Custom), path, depth)
    if category == "namedtuple":
        named: _NamedTuple = _converted(node, _NamedTuple)
        fields = {entry.key: _rich(entry.value, (*path, entry.key), depth + 1) for entry in named.entries}
        return NamedTupleNode(f"{named.module}:{named.clazz}", fields)
    return {key: _rich(each, (*path, key), depth + 1) for key, each in node.items()}


def _custom(node: _Custom, path: tuple[str, ...], depth: int) -> Any:
    if node.clazz == "tuple" and node.entries is not None:
        return tuple(_rich(each, (*path, str(place)), depth + 1) for place, each in enumerate(node.entries))
    if node.clazz == "ValueMetadataEntry" and node.data is not None:
        return _leaf(node.data, path)
    raise FormatError("the tree has a node of an unknown class", found=f"{node.clazz!r:.100}")


def _converted(node: Any, schema: Any) -> Any:
    try:
        return msgspec.convert(node, schema)
    except msgspec.ValidationError as error:
        raise FormatError("a node of the tree is malformed", found=str(error)) from None


def _check_depth(depth: int) -> None:
    if depth > MAX_STATE_DEPTH:
        raise LimitError("the tree is nested too deeply", expected=f"at most {MAX_STATE_DEPTH} levels", found="more")
