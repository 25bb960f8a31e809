"""Storages, as their persistent ids describe them, and strided views that lie inside of them."""

from __future__ import annotations

from typing import Any

from tensorkeep.dtypes import ALL_BY_NAME, DType
from tensorkeep.errors import LimitError, PickleError
from tensorkeep.formats.pickles.values import StorageRecord, StorageView, TensorRecord, Unknown, shown
from tensorkeep.limits import MAX_I64, MAX_NDIM

STORAGE_DTYPES: dict[str, str] = {
    "BFloat16Storage": "BF16",
    "BoolStorage": "BOOL",
    "ByteStorage": "U8",
    "CharStorage": "I8",
    "ComplexDoubleStorage": "C128",
    "ComplexFloatStorage": "C64",
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "IntStorage": "I32",
    "LongStorage": "I64",
    "QInt32Storage": "I32",
    "QInt8Storage": "I8",
    "QUInt8Storage": "U8",
    "ShortStorage": "I16",
    "UntypedStorage": "U8",
}
"""Class of a storage to dtype; quantized numbers are the integers that they are stored as."""

_STORAGE_MODULES = frozenset({"torch", "torch.cuda", "torch.storage", "torch.sparse", "torch.cuda.sparse"})


def storage_of(pid: Any) -> StorageRecord | StorageView:
    """Read a persistent id of a storage."""
    if type(pid) is not tuple or not 5 <= len(pid) <= 6 or pid[0] != "storage":
        raise PickleError("a persistent id is none of a storage", found=shown(pid))
    cls, key, location, n_elements = pid[1:5]
    dtype = STORAGE_DTYPES.get(cls.name) if isinstance(cls, Unknown) and cls.module in _STORAGE_MODULES else None
    if dtype is None:
        raise PickleError("a storage has a class that is not known", found=shown(cls))
    if type(key) is not str or type(location) is not str or not is_count(n_elements):
        raise PickleError("a persistent id is none of a storage", found=shown(pid[2:5]))
    storage = StorageRecord(key, dtype, location, n_elements)
    view = pid[5] if len(pid) == 6 else None
    if view is None:
        return storage
    if type(view) is not tuple or len(view) != 3 or type(view[0]) is not str:
        raise PickleError("a view of a storage is none", found=shown(view))
    _, offset, n_viewed = view
    if not is_count(offset) or not is_count(n_viewed) or offset + n_viewed > n_elements:
        raise PickleError("a view is not inside its storage", expected=f"{n_elements:,} elements", found=shown(view))
    return StorageView(storage, offset, n_viewed)


def is_count(value: Any) -> bool:
    """Say whether a value is a number of elements."""
    return type(value) is int and 0 <= value <= MAX_I64


def strided_tensor(
    storage: Any,
    offset: Any,
    shape: Any,
    strides: Any,
    dtype: DType | None = None,
    *,
    requires_grad: bool = False,
    metadata: Any = None,
) -> TensorRecord:
    """Describe a view of a storage, which must lie inside of it."""
    first = 0
    if type(storage) is StorageView:
        storage, first, limit = storage.storage, storage.offset, storage.n_elements
    elif type(storage) is StorageRecord:
        limit = storage.n_elements
    else:
        raise PickleError("a tensor is a view of what is no storage", found=type(storage).__name__)
    name = storage.dtype
    if dtype is not None:
        bits = ALL_BY_NAME[name].bits
        if first * bits % dtype.bits:
            raise PickleError("a part of a storage begins inside an element", found=f"byte {first * bits // 8:,}")
        limit, first, name = limit * bits // dtype.bits, first * bits // dtype.bits, dtype.name
    last = check_view(offset, shape, strides)
    if last >= limit:
        raise PickleError(
            "a tensor reaches out of its storage",
            expected=f"{limit:,} elements of storage {shown(storage.key)}",
            found=f"element {last:,} of a view of shape {shown(shape)}, strides {shown(strides)}, offset {offset}",
        )
    is_conj, is_neg = _flags(metadata) if metadata else (False, False)
    return TensorRecord(
        storage, name, first + offset, shape, strides, as_bool(requires_grad), is_conj=is_conj, is_neg=is_neg
    )


def check_view(offset: Any, shape: Any, strides: Any) -> int:
    """Return the last element that a view reaches; one before its first where it has none."""
    if type(shape) is not tuple or type(strides) is not tuple or len(shape) != len(strides) or not is_count(offset):
        raise PickleError(
            "a tensor is no view", found=f"shape {shown(shape)}, strides {shown(strides)}, {shown(offset)}"
        )
    if len(shape) > MAX_NDIM:
        raise LimitError("a tensor has too many dimensions", expected=f"at most {MAX_NDIM}", found=f"{len(shape):,}")
    last: int = offset
    n_elements = 1
    for extent, stride in zip(shape, strides, strict=True):
        is_extent = type(extent) is int and 0 <= extent <= MAX_I64
        if not is_extent or type(stride) is not int or not 0 <= stride <= MAX_I64:
            raise PickleError("a tensor has an impossible shape", found=f"{shown(shape)}, strides {shown(strides)}")
        n_elements *= extent
        last += (extent - 1) * stride
    if n_elements > MAX_I64:
        raise LimitError("a tensor has more elements than torch can hold", found=shown(shape))
    return last if n_elements else offset - 1


def as_bool(value: Any) -> bool:
    """Return whether a tensor requires gradients."""
    if type(value) is not bool:
        raise PickleError("requires_grad is neither True nor False", found=shown(value))
    return value


def _flags(metadata: Any) -> tuple[bool, bool]:
    known = type(metadata) is dict and not set(metadata) - {"conj", "neg"}
    if not known or any(type(flag) is not bool for flag in metadata.values()):
        raise PickleError("a tensor is marked in a way that is not known", found=shown(metadata))
    return metadata.get("conj", False), metadata.get("neg", False)
