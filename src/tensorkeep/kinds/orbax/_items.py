"""One item of a checkpoint, open: a tree with its arrays and texts, or a JSON value."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import FormatError
from tensorkeep.formats.orbax import Leaf, NamedTupleNode, leaves_of, parse_json, parse_tree, parse_value
from tensorkeep.kinds.base import OpenOptions
from tensorkeep.kinds.orbax._links import size_without_links
from tensorkeep.kinds.orbax._location import DATABASE, JSON, TEXTS, TREE, Item, read_text
from tensorkeep.kinds.orbax._reader import ArrayReader
from tensorkeep.kinds.orbax._tensorstore import ArrayFiles
from tensorkeep.state import NamedData
from tensorkeep.tensors import LazyTensor


class OpenedItem(msgspec.Struct, frozen=True):
    """An open item.

    Attributes:
        path: Names of the directories that lead to it.
        value: Its tree, with a `Leaf` for each array and text; or a JSON value.
        tensors: Full name to tensor.
        texts: Name of a leaf to its text.
        unknowns: Full name to a description of each array that no tensor can be made of.
        prefix: What full names have before the names of leaves.
        files: Its arrays; None for a JSON value.
        custom_metadata: What the user saved with it.
    """

    path: tuple[str, ...]
    value: Any
    tensors: dict[str, LazyTensor]
    texts: dict[str, str]
    unknowns: dict[str, str]
    prefix: str
    files: ArrayFiles | None = None
    custom_metadata: Any = None


def open_item(item: Item, options: OpenOptions) -> OpenedItem:
    """Open an item: read the descriptions of its arrays, and its texts."""
    prefix = "".join(f"{part}." for part in item.path)
    if not item.is_tree:
        value = _parsed(item, JSON, parse_value)
        return OpenedItem(item.path, value, {}, {}, {}, prefix)
    nbytes = size_without_links(item.directory)
    is_listed = TREE in item.names
    saved = _parsed(item, TREE, parse_tree) if is_listed else None
    files = ArrayFiles(
        os.path.abspath(item.directory),
        is_database=DATABASE in item.names,
        is_zarr3=saved is not None and saved.is_zarr3,
        nbytes=nbytes,
    )
    tree = saved.tree if saved is not None else {name: Leaf(name) for name in files.names()}
    leaves = list(leaves_of(tree))
    texts = _texts(item, [leaf.name for leaf in leaves if leaf.is_text])
    names = [leaf.name for leaf in leaves if not leaf.is_text]
    tensors: dict[str, LazyTensor] = {}
    unknowns: dict[str, str] = {}
    for name, layout in zip(names, files.layouts(names), strict=True):
        dtype = ALL_BY_NAME.get(layout.dtype or "")
        if dtype is None:
            unknowns[prefix + name] = f"an array of {layout.what}"
            continue
        n_elements = 1
        for extent in layout.shape:
            n_elements *= extent
        entry = TensorEntry(dtype.name, layout.shape, (0, dtype.nbytes(n_elements)))
        reader = ArrayReader(files, name, layout, options.framework, options.device)
        tensors[prefix + name] = LazyTensor(prefix + name, entry, reader)
    if not is_listed and "checkpoint" in item.names:
        unknowns[f"{prefix}checkpoint"] = "values in MessagePack, as orbax wrote them before it had _METADATA"
    custom = None if saved is None else saved.custom_metadata
    return OpenedItem(item.path, tree, tensors, texts, unknowns, prefix, files, custom)


def _parsed(item: Item, name: str, parse: Callable[[bytes], Any]) -> Any:
    path = os.path.join(item.directory, name)
    try:
        return parse(read_text(path))
    except FormatError as error:
        raise error.with_fields(path=path) from None


def _texts(item: Item, names: list[str]) -> dict[str, str]:
    if not names:
        return {}
    found = _parsed(item, TEXTS, lambda data: parse_json(data, dict[str, str])) if TEXTS in item.names else {}
    missing = [name for name in names if name not in found]
    if missing:
        raise FormatError("a text is missing", path=item.directory, expected=f"`{missing[0]}` in {TEXTS}")
    return {name: found[name] for name in names}


def built(node: Any, of_leaf: Callable[[Leaf], Any]) -> Any:
    """Return the tree with a value for each leaf, and named tuples as data."""
    if isinstance(node, Leaf):
        return of_leaf(node)
    if isinstance(node, NamedTupleNode):
        fields = {name: built(each, of_leaf) for name, each in node.fields.items()}
        return NamedData("namedtuple", node.class_name, fields)
    if isinstance(node, dict):
        return {key: built(each, of_leaf) for key, each in node.items()}
    if isinstance(node, list):
        return [built(each, of_leaf) for each in node]
    if isinstance(node, tuple):
        return tuple(built(each, of_leaf) for each in node)
    return node
