"""The interface of a layout."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from tensorkeep.arrays import Arithmetic
from tensorkeep.quantized._blocks import Box
from tensorkeep.quantized._numbers import Array, Floats
from tensorkeep.quantized._record import Headers, QuantizedTensor, wrong
from tensorkeep.quantized._settings import Settings

POSITIONS: Final = frozenset({"I32", "I64", "U32"})
"""Dtypes of positions."""

WORDS: Final = frozenset({"I32", "U32"})
"""Dtypes of words that hold several numbers."""

SCALES: Final = frozenset({"F64", "F32", "F16", "BF16"})
"""Dtypes of scales, except for those that hold only powers of two or numbers of eight bits."""

Take: TypeAlias = Callable[..., Array]
"""Returns a part of a stored tensor: takes its role and an index."""


class Layout(msgspec.Struct, frozen=True):
    """One way to store quantized tensors.

    Attributes:
        names: What its tensors say as their `layout`.
        endings: How the stored tensors end that it is recognized by.
        recognize: Takes the stored name without that ending, all headers and the settings; returns the tensor, or
            None if it is stored in another way. Raises `ContradictionError`.
        decode: Takes the operations of an array library, a tensor, a way to get the arrays that it is stored in, and
            a part of it; returns the numbers of that part.
        dtypes: Dtypes of tensors that it is recognized by, whatever their names.
    """

    names: tuple[str, ...]
    endings: tuple[str, ...]
    recognize: Callable[[str, Headers, Settings], QuantizedTensor | None]
    decode: Callable[[Arithmetic, QuantizedTensor, Take, Box], Floats]
    dtypes: frozenset[str] = frozenset()


def widened(places: range, step: int) -> range:
    """Return the whole runs of `step` positions that hold some."""
    return range(places.start // step * step, -(-places.stop // step) * step)


def cut(places: range, within: range) -> slice:
    """Return where positions are within others."""
    return slice(places.start - within.start, places.stop - within.start)


def require_integers(
    name: str, role: str, parts: Mapping[str, str], headers: Headers, dtypes: Collection[str]
) -> None:
    """Refuse a part of another dtype: NumPy would take it for other positions or words."""
    _require(name, "integers in another dtype", role, parts, headers, dtypes)


def require_scales(name: str, role: str, parts: Mapping[str, str], headers: Headers) -> None:
    """Refuse scales that are integers or booleans: they were cast, or are the codes of another layout."""
    _require(name, "scales in another dtype", role, parts, headers, SCALES)


def _require(
    name: str, what: str, role: str, parts: Mapping[str, str], headers: Headers, dtypes: Collection[str]
) -> None:
    if role in parts and headers[parts[role]].dtype not in dtypes:
        raise wrong(
            name,
            f"has {what} in `{parts[role]}`",
            parts,
            expected=" or ".join(sorted(dtypes)),
            found=str(headers[parts[role]]),
        )


def beside(name: str, end: str) -> str:
    """Return the name of what belongs to the inputs of a weight."""
    return before_inputs(name) + end


def before_inputs(name: str) -> str:
    """Return how such names begin: with the module, or with a tensor of weights that is not called `weight`."""
    return name.removesuffix("weight") if name.endswith(".weight") or name == "weight" else f"{name}_"


def whole(value: Any) -> int | None:
    """Return a number of a configuration if it can be a size."""
    return value if type(value) is int and value > 0 else None
