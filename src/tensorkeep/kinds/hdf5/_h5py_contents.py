"""The contents of a file that h5py reads: names are paths, also in Keras's files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.formats import (
    FileContents,
    StringArray,
    TensorPlace,
    UntypedTensor,
    WithoutElements,
    attribute_texts,
)
from tensorkeep.formats.hdf5 import ROOT, UnknownObject, typed_by_attribute
from tensorkeep.kinds.hdf5._library import LibraryChunks, LibraryFile
from tensorkeep.transport import ByteSource

_DTYPES = {dtype.numpy: dtype.name for dtype in ALL_BY_NAME.values() if dtype.is_in_numpy}


def contents_by_h5py(source: ByteSource) -> FileContents:
    """Return what h5py finds in a file; no link is followed to another one."""
    file = LibraryFile(source)
    found: dict[str, Any] = {}
    with file.reading() as opened:
        found[ROOT] = opened
        opened.visititems(lambda name, item: found.update({name: item}))
        attributes = {name: _attributes_of(item) for name, item in found.items()}
        datasets = {name: _Facts(item) for name, item in found.items() if isinstance(item, file.dataset_class)}
    tensors: dict[str, TensorPlace] = {}
    strings: dict[str, StringArray] = {}
    unknowns: dict[str, Any] = {}
    for name, facts in datasets.items():
        placed = facts.place(file, name, attributes[name])
        if isinstance(placed, TensorPlace):
            tensors[name] = placed
        elif isinstance(placed, StringArray):
            strings[name] = placed
        else:
            unknowns[name] = placed
    texts = {
        name if path == ROOT else f"{path}@{name}": text
        for path, own in attributes.items()
        for name, text in attribute_texts(own).items()
    }
    return FileContents(tensors, texts, attributes, unknowns, strings)


class _Facts:
    """What h5py knows about a dataset."""

    def __init__(self, dataset: Any) -> None:
        self.shape: tuple[int, ...] | None = dataset.shape
        self.dtype: Any = dataset.dtype
        self.chunks: tuple[int, ...] | None = dataset.chunks
        self.is_text, self.is_utf8 = _text_of(dataset)
        self.is_elsewhere = bool(dataset.external) or dataset.is_virtual

    def place(self, file: LibraryFile, name: str, attributes: Mapping[str, Any]) -> Any:
        """Return the tensor, or why there is no tensor."""
        if self.shape is None:
            return WithoutElements("a dataset without elements (its dataspace is null)")
        if self.is_elsewhere:
            return UnknownObject("elements in other files", "not looked for", "HDF5 reads files that it names")
        if self.is_text:
            return StringArray(self.shape, partial(_read_strings, file, name, is_utf8=self.is_utf8))
        base = self.dtype.base
        shape = self.shape + self.dtype.shape
        raw = f"|V{base.itemsize}"
        dtype = raw if base.kind == "V" and base.names is None else _DTYPES.get(base.newbyteorder("=").name)
        if dtype is None:
            return UnknownObject(f"elements of {base}")
        numpy = raw if dtype == raw else base.newbyteorder("<").str
        nbytes = prod(shape) * base.itemsize
        chunks = LibraryChunks(file, name, numpy, shape, self.chunks) if nbytes else None
        place = TensorPlace(dtype, shape, 0, nbytes if dtype == raw else None, chunks=chunks)
        if dtype != raw:
            return place
        return typed_by_attribute(name, UntypedTensor("bytes without a dtype", base.itemsize, place), attributes)


def _text_of(dataset: Any) -> tuple[bool, bool]:
    """Say whether a dataset holds strings, and whether these are UTF-8."""
    import h5py

    info = h5py.check_string_dtype(dataset.dtype)
    return info is not None, info is not None and info.encoding == "utf-8"


def _read_strings(file: LibraryFile, name: str, *, is_utf8: bool) -> list[Any]:
    """Read all strings of a dataset, in C order."""
    with file.reading() as opened:
        found: list[Any] = np.asarray(opened[name][()], object).ravel().tolist()
        return [each.decode() if is_utf8 else each for each in found]


def _attributes_of(item: Any) -> dict[str, Any]:
    return {name: _plain(value) for name, value in item.attrs.items()}


def _plain(value: Any) -> Any:
    """Return a value of h5py as plain data."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, list):
        return tuple(_plain(item) for item in value)
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
