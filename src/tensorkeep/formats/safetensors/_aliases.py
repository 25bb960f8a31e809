"""Checks declared views against the tensors in the file. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import prod

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import FormatError
from tensorkeep.formats.safetensors._state import Alias
from tensorkeep.limits import MAX_I64


def check_owner(name: str, alias: Alias, stored: Collection[str], path: str | None = None) -> None:
    """Check that a view is not itself stored, and that its owner is."""
    if name in stored or alias.of not in stored:
        raise FormatError(
            f"tensor `{name}` is declared as a view of `{alias.of}`",
            path=path,
            tensor=name,
            expected="a view of a tensor in the file",
            found="the tensor itself in the file" if name in stored else f"no `{alias.of}`",
        )


def check_storages(storages: Iterable[str], stored: Collection[str], path: str | None = None) -> None:
    """Check that the tensors that only hold memory for others are in the file."""
    missing = next((name for name in storages if name not in stored), None)
    if missing is not None:
        raise FormatError(
            f"`{missing}` is declared to hold the memory of other tensors, but is not in the file",
            path=path,
            tensor=missing,
        )


def check_view(name: str, alias: Alias, owner: TensorEntry, path: str | None = None) -> None:
    """Check that the owner holds all elements of a view."""
    if not alias.is_whole and not _is_held(alias, owner):
        raise FormatError(
            f"tensor `{name}` is declared as a view of `{alias.of}`, but extends beyond it",
            path=path,
            tensor=name,
            found=f"{alias.dtype or 'its dtype'}, shape {list(alias.shape or ())}, at byte {alias.offset:,}",
        )


def _is_held(alias: Alias, owner: TensorEntry) -> bool:
    dtype = ALL_BY_NAME.get(alias.dtype or owner.dtype)
    shape = owner.shape if alias.shape is None else alias.shape
    if dtype is None or dtype.bits % 8 or alias.offset % dtype.itemsize:
        return False
    if (alias.is_conj and not dtype.is_complex) or (alias.is_neg and not (dtype.is_complex or dtype.is_float)):
        return False
    n_elements = reach = prod(shape)
    if alias.strides is not None:
        if len(alias.strides) != len(shape):
            return False
        steps = zip(shape, alias.strides, strict=True)
        reach = 1 + sum((n - 1) * stride for n, stride in steps) if n_elements else 0
    return alias.offset + reach * dtype.itemsize <= owner.nbytes and n_elements * dtype.itemsize <= MAX_I64
