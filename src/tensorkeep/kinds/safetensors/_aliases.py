"""Tensors that are stored as views of others. Each can be read alone, and only its own elements are read."""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import Final

from tensorkeep.dtypes import ALL_BY_NAME, BY_NAME
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.formats.safetensors import Alias, State, check_owner, check_storages, check_view, parse_state
from tensorkeep.tensors import Layout, LazyTensor, StridedReader, TensorReader, c_strides

_OF_SHARING: Final = ('"aliases"', '"storages"')
"""Text without these keys describes no shared memory and need not be parsed; most has none."""


def sharing_of(text: str | None, stored: Collection[str], path: str) -> State | None:
    """Parse which tensors share memory; None if none do, or a later version wrote it."""
    if text is None or not any(member in text for member in _OF_SHARING):
        return None
    try:
        state = parse_state(text)
    except UnsupportedError:
        return None
    except FormatError as error:
        raise error.with_fields(path=path) from None
    check_storages(state.storages, stored, path)
    if not state.aliases:
        return None
    for name, alias in state.aliases.items():
        check_owner(name, alias, stored, path)
    return state


def names_of(stored: Collection[str], sharing: State | None) -> Collection[str]:
    """Return the names of all tensors: views included, bare storages excluded."""
    if sharing is None:
        return stored
    hidden = frozenset(sharing.storages)
    return [*(name for name in stored if name not in hidden), *sharing.aliases]


def alias_tensor(name: str, alias: Alias, owner: LazyTensor, path: str) -> LazyTensor:
    """Return a lazy tensor that is a view of another."""
    if alias.is_whole:
        return owner.renamed(name)
    entry, reader = owner.entry, owner.reader
    check_view(name, alias, entry, path)
    if not isinstance(reader, TensorReader):
        raise FormatError(
            f"tensor `{name}` is declared as a view of `{alias.of}`, which is split over several files",
            path=path,
            tensor=name,
        )
    dtype = ALL_BY_NAME[alias.dtype or entry.dtype]
    shape = entry.shape if alias.shape is None else alias.shape
    strides = c_strides(shape) if alias.strides is None else alias.strides
    start = entry.data_offsets[0] + alias.offset
    nbytes = prod(shape) * dtype.itemsize
    layout = Layout(reader.data_start + start, strides, is_conj=alias.is_conj, is_neg=alias.is_neg)
    if dtype.name in BY_NAME and layout.is_plain(dtype, shape):
        return LazyTensor(name, TensorEntry(dtype.name, shape, (start, start + nbytes)), reader)
    return LazyTensor(name, TensorEntry(dtype.name, shape, (0, nbytes)), StridedReader(reader, layout))
