"""One item of a checkpoint, open: a tree with its arrays and texts, or a JSON value."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import FormatError, SourceMissingError
from tensorkeep.formats.orbax import (
    Leaf,
    NamedTupleNode,
    SavedTree,
    leaves_of,
    parse_json,
    parse_tree,
    parse_value,
)
from tensorkeep.formats.zarr import ArrayLayout
from tensorkeep.kinds.base import OpenOptions
from tensorkeep.kinds.orbax._database_store import DatabaseStore
from tensorkeep.kinds.orbax._directory import JSON, MANIFEST, TEXTS, TREE, read_file
from tensorkeep.kinds.orbax._folder_store import FolderStore
from tensorkeep.kinds.orbax._links import size_without_links
from tensorkeep.kinds.orbax._location import Item
from tensorkeep.kinds.orbax._served_store import ServedStore
from tensorkeep.kinds.orbax._stored import Store, StoredArrays
from tensorkeep.kinds.orbax._tensorstore import TensorstoreArrays
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.state import NamedData
from tensorkeep.tensors import LazyTensor, Reader
from tensorkeep.transport import is_remote, join


class Arrays(Protocol):
    """The arrays of an item.

    Attributes:
        directory: Where they are.
        nbytes: Bytes of all files.
    """

    directory: str
    nbytes: int

    @property
    def file_names(self) -> list[str]:
        """The files that hold the arrays, as paths below the directory."""

    def names(self) -> list[str]:
        """Return the names of all arrays, for old checkpoints without a list of them."""

    def layouts(self, names: Sequence[str]) -> list[ArrayLayout]:
        """Return what some arrays are."""

    def reader(self, name: str, layout: ArrayLayout, options: OpenOptions) -> Reader:
        """Return the reader of an array, whose dtype is in the dtype table."""

    def is_checked(self, name: str, layout: ArrayLayout) -> bool:
        """Say whether all of an array has a checksum that was right."""

    def close(self) -> None:
        """Close all files."""


class OpenedItem(msgspec.Struct, frozen=True):
    """An open item.

    Attributes:
        path: Names of the directories that lead to it.
        value: Its tree, with a `Leaf` for each array and text; or a JSON value.
        tensors: Full name to tensor.
        texts: Name of a leaf to its text.
        unknowns: Full name to a description of each array that no tensor can be made of.
        prefix: What full names have before the names of leaves.
        layouts: Full name of each tensor to what its array is.
        arrays: Its arrays; None for a JSON value.
        custom_metadata: What the user saved with it.
    """

    path: tuple[str, ...]
    value: Any
    tensors: dict[str, LazyTensor]
    texts: dict[str, str]
    unknowns: dict[str, str]
    prefix: str
    layouts: dict[str, ArrayLayout] = {}
    arrays: Arrays | None = None
    custom_metadata: Any = None

    def close(self) -> None:
        """Close its files."""
        if self.arrays is not None:
            self.arrays.close()


def open_item(item: Item, options: OpenOptions) -> OpenedItem:
    """Open an item: read the descriptions of its arrays, and its texts."""
    prefix = "".join(f"{part}." for part in item.path)
    if not item.is_tree:
        value = _parsed(item, JSON, parse_value)
        return OpenedItem(item.path, value, {}, {}, {}, prefix)
    is_listed = TREE in item.names
    saved = _parsed(item, TREE, parse_tree) if is_listed else SavedTree(None)
    arrays = _arrays(item, saved, options)
    tree = saved.tree if is_listed else {name: Leaf(name) for name in arrays.names()}
    leaves = list(leaves_of(tree))
    texts = _texts(item, [leaf.name for leaf in leaves if leaf.is_text])
    names = [leaf.name for leaf in leaves if not leaf.is_text]
    tensors: dict[str, LazyTensor] = {}
    unknowns: dict[str, str] = {}
    layouts: dict[str, ArrayLayout] = {}
    for name, layout in zip(names, arrays.layouts(names), strict=True):
        dtype = ALL_BY_NAME.get(layout.dtype or "")
        if dtype is None:
            unknowns[prefix + name] = f"an array of {layout.what}"
            continue
        n_elements = 1
        for extent in layout.shape:
            n_elements *= extent
        entry = TensorEntry(dtype.name, layout.shape, (0, dtype.nbytes(n_elements)))
        reader = arrays.reader(name, layout, options)
        tensors[prefix + name] = LazyTensor(prefix + name, entry, reader)
        layouts[prefix + name] = layout
    if not is_listed and "checkpoint" in item.names:
        unknowns[f"{prefix}checkpoint"] = "values in MessagePack, as orbax wrote them before it had _METADATA"
    return OpenedItem(item.path, tree, tensors, texts, unknowns, prefix, layouts, arrays, saved.custom_metadata)


def _arrays(item: Item, saved: SavedTree, options: OpenOptions) -> Arrays:
    """Return what reads the arrays: tensorkeep, unless the caller names tensorstore."""
    is_database = MANIFEST in item.names
    store: Store
    if is_remote(item.directory):
        store = (DatabaseStore if is_database else ServedStore)(item.directory, options.backend)
        nbytes = store.listed_nbytes
    else:
        directory, nbytes = os.path.abspath(item.directory), size_without_links(item.directory)
        if options.engine is not None:
            return TensorstoreArrays(directory, is_database=is_database, is_zarr3=saved.is_zarr3, nbytes=nbytes)
        store = (DatabaseStore if is_database else FolderStore)(directory, options.backend)
    return StoredArrays(store, is_zarr3=saved.is_zarr3, is_complete=saved.is_complete, nbytes=nbytes)


def _parsed(item: Item, name: str, parse: Callable[[bytes], Any]) -> Any:
    path = join(item.directory, name)
    try:
        return parse(read_file(path, MAX_HEADER_NBYTES))
    except FormatError as error:
        raise error.with_fields(path=path) from None


def _texts(item: Item, names: list[str]) -> dict[str, str]:
    if not names:
        return {}
    try:
        found = _parsed(item, TEXTS, lambda data: parse_json(data, dict[str, str]))
    except SourceMissingError:
        found = {}
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
