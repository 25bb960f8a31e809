"""Storages, by their persistent ids, and strided views; every view is proved to lie inside its storage."""

from __future__ import annotations

from typing import Any

from tensorkeep.dtypes import ALL_BY_NAME, DType
from tensorkeep.errors import LimitError, PickleError
from tensorkeep.formats.pickles.values import StorageRecord, StorageView, TensorRecord, Unknown, short_repr
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
"""Storage class to dtype; for quantized numbers, the dtype of the stored integers."""

_STORAGE_MODULES = frozenset({"torch", "torch.cuda", "torch.storage", "torch.sparse", "torch.cuda.sparse"})


def storage_of(pid: Any) -> StorageRecord | StorageView:
    """Return the storage, or part of one, that a persistent id describes."""
    if type(pid) is not tuple or not 5 <= len(pid) <= 6 or pid[0] != "storage":
        raise PickleError("a persistent id does not describe a storage", found=short_repr(pid))
    cls, key, location, n_elements = pid[1:5]
    dtype = STORAGE_DTYPES.get(cls.name) if isinstance(cls, Unknown) and cls.module in _STORAGE_MODULES else None
    if dtype is None:
        raise PickleError("unknown storage class", found=short_repr(cls))
    if type(key) is not str or type(location) is not str or not is_count(n_elements):
        raise PickleError("a persistent id does not describe a storage", found=short_repr(pid[2:5]))
    storage = StorageRecord(key, dtype, location, n_elements)
    view = pid[5] if len(pid) == 6 else None
    if view is None:
        return storage
    if type(view) is not tuple or len(view) != 3 or type(view[0]) is not str:
        raise PickleError("invalid view of a storage", found=short_repr(view))
    _, offset, n_viewed = view
    if not is_count(offset) or not is_count(n_viewed) or offset + n_viewed > n_elements:
        raise PickleError(
            "a view is not inside its storage", expected=f"{n_elements:,} elements", found=short_repr(view)
        )
    return StorageView(storage, offset, n_viewed)


def is_count(value: Any) -> bool:
    """Say whether a value can be a number of elements."""
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
    """Describe a view, which must lie inside its storage."""
    first = 0
    if type(storage) is StorageView:
        storage, first, limit = storage.storage, storage.offset, storage.n_elements
    elif type(storage) is StorageRecord:
        limit = storage.n_elements
    else:
        raise PickleError("a tensor is a view of something that is not a storage", found=type(storage).__name__)
    name = storage.dtype
    if dtype is not None:
        bits = ALL_BY_NAME[name].bits
        if first * bits % dtype.bits:
            raise PickleError("a part of a storage starts inside an element", found=f"byte {first * bits // 8:,}")
        limit, first, name = limit * bits // dtype.bits, first * bits // dtype.bits, dtype.name
    last = check_view(offset, shape, strides)
    if last >= limit:
        raise PickleError(
            "a tensor extends beyond its storage",
            expected=f"{limit:,} elements of storage {short_repr(storage.key)}",
            found=f"element {last:,}: shape {short_repr(shape)}, strides {short_repr(strides)}, offset {offset}",
        )
    is_conj, is_neg = _flags(metadata) if metadata else (False, False)
    return TensorRecord(
        storage, name, first + offset, shape, strides, as_bool(requires_grad), is_conj=is_conj, is_neg=is_neg
    )


def check_view(offset: Any, shape: Any, strides: Any) -> int:
    """Return the last element of a view; the one before its first if the view is empty."""
    if type(shape) is not tuple or type(strides) is not tuple or len(shape) != len(strides) or not is_count(offset):
        raise PickleError(
            "invalid shape, strides or offset of a tensor",
            found=f"shape {short_repr(shape)}, strides {short_repr(strides)}, {short_repr(offset)}",
        )
    if len(shape) > MAX_NDIM:
        raise LimitError("a tensor has too many dimensions", expected=f"at most {MAX_NDIM}", found=f"{len(shape):,}")
    last: int = offset
    n_elements = 1
    for extent, stride in zip(shape, strides, strict=True):
        is_extent = type(extent) is int and 0 <= extent <= MAX_I64
        if not is_extent or type(stride) is not int or not 0 <= stride <= MAX_I64:
            raise PickleError(
                "impossible shape or strides of a tensor", found=f"{short_repr(shape)}, strides {short_repr(strides)}"
            )
        n_elements *= extent
        last += (extent - 1) * stride
    if n_elements > MAX_I64:
        raise LimitError("a tensor has more elements than torch can hold", found=short_repr(shape))
    return last if n_elements else offset - 1


def as_bool(value: Any) -> bool:
    """Return the `requires_grad` of a tensor, if it is a bool."""
    if type(value) is not bool:
        raise PickleError("requires_grad is neither True nor False", found=short_repr(value))
    return value


def _flags(metadata: Any) -> tuple[bool, bool]:
    known = type(metadata) is dict and not set(metadata) - {"conj", "neg"}
    if not known or any(type(flag) is not bool for flag in metadata.values()):
        raise PickleError("a tensor has unknown marks", found=short_repr(metadata))
    return metadata.get("conj", False), metadata.get("neg", False)
