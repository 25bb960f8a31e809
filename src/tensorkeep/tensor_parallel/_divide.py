"""Every rank's part of every tensor, before anything is read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import RefusedError, SelectionError
from tensorkeep.quantized import Layouts, QuantizedTensor
from tensorkeep.tensor_parallel._plan import RuleOf
from tensorkeep.tensor_parallel._rules import Rule, ranges_of_ranks
from tensorkeep.texts import listed

_TRANSPOSED: Final = frozenset({"gptq", "awq"})
"""Layouts whose parts have inputs before outputs."""

_DIVIDED: Final = _TRANSPOSED | {
    *("pack-quantized", "nvfp4-pack-quantized", "modelopt-nvfp4", "mxfp4-pack-quantized"),
    *("float-quantized", "int-quantized", "mxfp8-quantized", "modelopt-fp8", "block-fp8", "scaled-fp8"),
}
"""Layouts whose parts lie along the dimensions of the tensor."""

Ranges = tuple[tuple[int, int], ...]


class Header(msgspec.Struct, frozen=True):
    """What is known of a tensor.

    Attributes:
        dtype: Its dtype by the name in the format.
        shape: Elements along each dimension.
    """

    dtype: str
    shape: tuple[int, ...]


class Division(msgspec.Struct, frozen=True):
    """How one tensor is divided.

    Attributes:
        dim: The dimension.
        ranges: Each rank's half-open ranges of it.
    """

    dim: int
    ranges: tuple[Ranges, ...]


def divide(
    headers: Mapping[str, Header], rule_of: RuleOf, n_ranks: int, quantized: Layouts | None = None
) -> dict[str, Division]:
    """Return the tensors that are divided; all others are whole for every rank."""
    owners = {} if quantized is None else _owners(quantized)
    found: dict[str, Division] = {}
    faults: dict[str, str] = {}
    for name, header in headers.items():
        try:
            owner = owners.get(name)
            divided = (
                _division(header, rule_of(name), n_ranks)
                if owner is None
                else _division_of_part(header, *owner, rule_of, n_ranks)
            )
        except SelectionError as error:
            faults[name] = error.message
            continue
        if divided is not None:
            found[name] = divided
    for name, finding in () if quantized is None else quantized.broken.items():
        if rule_of(name).axis is not None:
            faults[name] = finding.message
    if faults:
        texts = (
            f"`{name}` {list(headers[name].shape) if name in headers else ''}: {faults[name]}" for name in faults
        )
        raise RefusedError(
            f"{len(faults):,} of the tensors cannot be divided among {n_ranks} ranks",
            tensor=next(iter(faults)),
            found=listed(texts, 3),
            hint="Choose another number of ranks, pad these tensors first, or give them the style `replicate`",
        )
    return found


def _division(header: Header, rule: Rule, n_ranks: int) -> Division | None:
    dim = rule.dim_of(len(header.shape))
    if dim is None or n_ranks == 1:
        return None
    division = Division(dim, tuple(ranges_of_ranks(header.shape[dim], rule, n_ranks)))
    _refuse_broken_bytes(header, division)
    return division


def _refuse_broken_bytes(header: Header, division: Division) -> None:
    """Refuse boundaries inside a byte."""
    dtype = ALL_BY_NAME.get(header.dtype)
    if dtype is None:
        raise SelectionError(f"its dtype {header.dtype} is unknown")
    inner = 1
    for extent in header.shape[division.dim + 1 :]:
        inner *= extent
    bounds = {bound for ranges in division.ranges for pair in ranges for bound in pair}
    if any(bound * inner * dtype.bits % 8 for bound in {*bounds, header.shape[division.dim]}):
        raise SelectionError(f"its elements of {dtype.bits} bits would be divided within a byte")


def _owners(quantized: Layouts) -> dict[str, tuple[QuantizedTensor, str]]:
    """Return the quantized tensor, and the role in it, of each stored part."""
    return {stored: (tensor, role) for tensor in quantized.tensors.values() for role, stored in tensor.parts.items()}


def _division_of_part(
    header: Header, tensor: QuantizedTensor, role: str, rule_of: RuleOf, n_ranks: int
) -> Division | None:
    """Divide a part of a quantized tensor where the tensor itself is divided."""
    rule = rule_of(tensor.name)
    of_whole = rule.dim_of(len(tensor.shape))
    if of_whole is None or n_ranks == 1:
        return None
    if tensor.layout not in _DIVIDED:
        raise SelectionError(f"tensors stored as {tensor.layout} cannot be divided; dequantize them first")
    dim = _dim_of_part(header.shape, tensor, role, of_whole)
    if dim is None:
        return None
    extent, whole = header.shape[dim], tensor.shape[of_whole]
    if extent == 1 and whole > 1:
        return None  # one scale for all of it
    bits = ALL_BY_NAME[header.dtype].bits if header.dtype in ALL_BY_NAME else 0
    is_packed = role in {"data", "zeros"} and whole * tensor.bits == extent * bits
    if not (extent == whole or is_packed or extent * tensor.block[of_whole] == whole):
        raise SelectionError(f"its last word or group is not full: {extent:,} for {whole:,} numbers")
    ranges = ranges_of_ranks(extent, rule, n_ranks)
    wanted = ranges_of_ranks(whole, rule, n_ranks)
    for own, of_tensor in zip(ranges, wanted, strict=True):
        if [bound * whole for pair in own for bound in pair] != [
            bound * extent for pair in of_tensor for bound in pair
        ]:
            raise SelectionError("its groups would be divided")
    division = Division(dim, tuple(ranges))
    _refuse_broken_bytes(header, division)
    return division


def _dim_of_part(shape: tuple[int, ...], tensor: QuantizedTensor, role: str, of_whole: int) -> int | None:
    """Return the dimension of a part that lies along a dimension of the whole; None if none does."""
    n = len(tensor.shape)
    from_end = n - of_whole  # 1: columns, 2: rows
    if role in {"shape", "format", "scale"}:
        return None
    if role == "order":
        return 0 if from_end == 1 else None
    if len(shape) == n:
        is_turned = tensor.layout in _TRANSPOSED and from_end <= 2
        return n - (3 - from_end) if is_turned else of_whole
    if len(shape) == n - 1 and from_end >= 2:  # a scale per row
        return of_whole
    if not shape or shape == (1,):
        return None
    raise SelectionError(f"its part `{role}` does not lie along the tensor")
