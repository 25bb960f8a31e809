"""What torch 0.1 wrote: a tar archive of four members.

    sys_info  pickle  {"protocol_version": 1000, "little_endian": True, "type_sizes": {…}}
    pickle    pickle  the object; its persistent ids are the numbers below, as decimal text
    storages  pickle  the number of storages; then for each
                pickle  (number, location, class), then int64 elements, then the elements
              pickle  [(number, number of the storage, first element, elements), …], the views, which have no bytes
    tensors   pickle  the number of tensors; then for each
                pickle  (number, number of the storage, class), then int32 ndim and 4 meaningless bytes,
                then int64 shape, strides, and the first element

The numbers are memory addresses of the process that wrote the file. The archive is read in place.
"""

from __future__ import annotations

import struct
from typing import Any

from tensorkeep.errors import ArchiveError, LimitError, PickleError, UnsupportedError
from tensorkeep.formats.archives import read_ustar
from tensorkeep.formats.pickles.containers._window import Window
from tensorkeep.formats.pickles.machine import Context
from tensorkeep.formats.pickles.names import STORAGE_DTYPES, strided_tensor
from tensorkeep.formats.pickles.values import (
    PickleDocument,
    StorageRecord,
    StorageView,
    TensorRecord,
    Unknown,
    short_repr,
)
from tensorkeep.limits import MAX_NDIM
from tensorkeep.transport import ByteRange, ByteSource

_MEMBERS = ("sys_info", "pickle", "storages", "tensors")
_VERSION = 1000
_MODULES = frozenset({"torch", "torch.cuda"})
_COUNT = struct.Struct("<q")
_N_DIMENSIONS = struct.Struct("<i4x")
_MIN_ITEM_NBYTES = 16
"""Fewest bytes that a storage or tensor takes."""


def read_tar(source: ByteSource, context: Context) -> PickleDocument:
    """Read a tar archive of torch 0.1; storages are located, not read."""
    members = read_ustar(source)
    if members.keys() != set(_MEMBERS):
        raise ArchiveError("not a tar archive of torch", expected=str(_MEMBERS), found=str(tuple(members)))
    windows = {name: Window(source, span, context) for name, span in members.items()}
    _check_system(windows["sys_info"])
    contents = _Contents()
    context.persistent_load = contents.find
    contents.read_storages(windows["storages"])
    contents.read_tensors(windows["tensors"])
    context.storages.update(contents.storages)
    value = windows["pickle"].run()
    for name, window in windows.items():
        if window.n_left:
            raise PickleError(f"bytes follow the end of {name}", expected="none", found=f"{window.n_left:,}")
    return PickleDocument(
        "tar", value, context.storages, contents.spans, dangers=context.dangers, embedded=context.embedded
    )


def _check_system(window: Window) -> None:
    system = window.run_plain()
    if type(system) is not dict or type(system.get("little_endian")) is not bool:
        raise PickleError(
            "the file does not declare the byte order of the machine that wrote it", expected="little_endian"
        )
    if system.get("protocol_version") != _VERSION:
        raise PickleError("unknown version of a tar archive of torch", expected=f"{_VERSION}")
    if not system["little_endian"]:
        raise UnsupportedError(
            "a big-endian machine wrote this tar archive", hint="Save it again with torch 0.4 or later"
        )


class _Contents:
    """Storages and tensors of the archive, by their persistent ids.

    Attributes:
        storages: Key to storage, without views.
        spans: Key to the bytes of the storage in the source.
    """

    def __init__(self) -> None:
        self.storages: dict[str, StorageRecord] = {}
        self.spans: dict[str, ByteRange] = {}
        self._found: dict[str, StorageRecord | StorageView | TensorRecord] = {}

    def find(self, pid: Any) -> Any:
        """Return what a persistent id stands for."""
        if type(pid) is tuple and len(pid) == 3 and isinstance(pid[0], Unknown) and pid[0].is_reference:
            return pid[0]
        if type(pid) is not str or pid not in self._found:
            raise PickleError("the object refers to a tensor that is not in the archive", found=short_repr(pid))
        return self._found[pid]

    def read_storages(self, window: Window) -> None:
        """Read the member with this name."""
        for _ in range(_read_count(window, "storages")):
            number, location, kind = _read_item(window, "storage")
            if type(location) is not str:
                raise PickleError("the location of a storage is not text", found=type(location).__name__)
            n_elements = _take(window, _COUNT)[0]
            if n_elements < 0:
                raise PickleError(f"storage {number} has a negative size", found=f"{n_elements:,}")
            storage = StorageRecord(str(number), _dtype_of(kind, "Storage"), location, n_elements)
            self._add(number, storage)
            self.storages[storage.key] = storage
            self.spans[storage.key] = window.skip(storage.nbytes)
        self._read_views(window)

    def _read_views(self, window: Window) -> None:
        views = window.run_plain()
        if type(views) is not list:
            raise PickleError("the views of storages are not a list", found=type(views).__name__)
        for view in views:
            if type(view) is not tuple or len(view) != 4 or any(type(number) is not int for number in view):
                raise PickleError("a view of a storage is not four numbers", found=type(view).__name__)
            number, whole, offset, n_elements = view
            storage = self.storages.get(str(whole))
            if storage is None or offset < 0 or n_elements < 0 or offset + n_elements > storage.n_elements:
                raise PickleError(
                    f"view {number} is not inside storage {whole}", found=f"{offset:,} + {n_elements:,}"
                )
            self._add(number, StorageView(storage, offset, n_elements))

    def read_tensors(self, window: Window) -> None:
        """Read the member with this name."""
        for _ in range(_read_count(window, "tensors")):
            number, place, kind = _read_item(window, "tensor")
            storage = self._found.get(str(place)) if type(place) is int else None
            if storage is None or isinstance(storage, TensorRecord):
                raise PickleError(
                    f"tensor {number} refers to a storage that is not in the archive", found=short_repr(place)
                )
            self._add(number, _read_tensor(window, number, _dtype_of(kind, "Tensor"), storage))

    def _add(self, number: int, record: StorageRecord | StorageView | TensorRecord) -> None:
        key = str(number)
        if key in self._found:
            raise PickleError("two storages or tensors have the same number", found=key)
        self._found[key] = record


def _read_tensor(window: Window, number: int, dtype: str, storage: StorageRecord | StorageView) -> TensorRecord:
    whole = storage.storage if isinstance(storage, StorageView) else storage
    if whole.dtype != dtype:
        raise PickleError(f"tensor {number} has another dtype than its storage", expected=whole.dtype, found=dtype)
    ndim = _take(window, _N_DIMENSIONS)[0]
    if not 0 <= ndim <= MAX_NDIM:
        raise LimitError(f"tensor {number} has too many dimensions", expected=f"0 to {MAX_NDIM}", found=f"{ndim:,}")
    numbers = _take(window, struct.Struct(f"<{2 * ndim + 1}q"))
    return strided_tensor(storage, numbers[-1], numbers[:ndim], numbers[ndim:-1])


def _read_count(window: Window, what: str) -> int:
    n_items = window.run_plain()
    if type(n_items) is not int or not 0 <= n_items * _MIN_ITEM_NBYTES <= window.n_left:
        raise PickleError(f"impossible number of {what}", found=short_repr(n_items))
    return n_items


def _read_item(window: Window, what: str) -> tuple[int, Any, Unknown]:
    """Return the three values that describe an item: its number, its location or storage, and its class."""
    item = window.run_plain(n_names=1)
    if type(item) is not tuple or len(item) != 3 or type(item[0]) is not int or not isinstance(item[2], Unknown):
        raise PickleError(f"invalid description of a {what}", found=f"{type(item).__name__}")
    return item


def _dtype_of(kind: Unknown, suffix: str) -> str:
    """Return the dtype of a class such as `torch.FloatStorage` or `torch.cuda.FloatTensor`."""
    dtype = STORAGE_DTYPES.get(kind.name.removesuffix(suffix) + "Storage") if kind.name.endswith(suffix) else None
    if dtype is None or kind.module not in _MODULES or not kind.is_reference:
        raise PickleError(f"unknown {suffix.lower()} class", found=kind.qualified_name)
    return dtype


def _take(window: Window, numbers: struct.Struct) -> tuple[int, ...]:
    return numbers.unpack(window.take(numbers.size))
