"""A reader that converts numbers to a narrower dtype and rounds at random, so that the mean is right.

A number between two neighbors becomes the nearer one more often, in proportion to the distances. What the narrower
dtype can represent stays as it is. Numbers beyond its largest become what `cast` makes of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import adapter_for
from tensorkeep.arrays.elements import within_numpys_limits
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.tensors.indexing import Selection, parse_index
from tensorkeep.tensors.readers._cast import CastReader
from tensorkeep.tensors.readers._random_bits import halves_of_block, halves_of_run, words_of_block, words_of_run

Array = npt.NDArray[Any]

_BLOCK_LENGTH: Final = 2**15
"""Numbers to round at a time: they and their random bits stay in the L2 cache."""


class StochasticReader(CastReader, frozen=True, kw_only=True):
    """Reads what another reader reads, and rounds it.

    Attributes:
        key: Decides the random bits; see `key_of`.
    """

    key: int

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Read and round a part of a tensor."""
        block = Selection(selection.shape, selection.axes, (slice(None),) * len(selection.axes))
        with within_numpys_limits(name, entry.shape):
            wide = self._wide(self.stored.with_framework("numpy").read(name, entry, block))
            bits_of = words_of_block if wide.dtype == np.float64 else halves_of_block
            rounded = round_at_random(wide, bits_of(self.key, selection), self.cast_to)
            return self._of(selection.apply(rounded))

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Any:
        """Read and round a run of elements."""
        wide = self._wide(self.stored.with_framework("numpy").read_run(name, entry, start, stop))
        bits_of = words_of_run if wide.dtype == np.float64 else halves_of_run
        rounded = np.empty(stop - start, self.cast_to.bits_name)
        for first in range(0, stop - start, _BLOCK_LENGTH):
            last = min(first + _BLOCK_LENGTH, stop - start)
            bits = bits_of(self.key, start + first, start + last)
            rounded[first:last] = round_at_random(wide[first:last], bits, self.cast_to)
        return self._of(rounded)

    def staged(self, entries: Mapping[str, TensorEntry]) -> None:
        """Return None: devices round to nearest."""

    def load(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Read and round whole tensors."""
        loaded: dict[str, Any] = {}
        for name, entry in entries.items():
            if entry.n_elements:
                run = self.with_framework("numpy").read_run(name, entry, 0, entry.n_elements)
                loaded[name] = self._of(run.view(self.cast_to.bits_name).reshape(entry.shape))
            else:
                loaded[name] = self.read(name, entry, parse_index(..., entry.shape))
        return loaded

    def _wide(self, stored: Array) -> Array:
        dtype = np.float64 if stored.dtype == np.float64 else np.float32
        return stored.astype(dtype, copy=False)

    def _of(self, elements: Array) -> Any:
        return self.adapter.from_elements(elements, self.cast_to)


class _Grid(msgspec.Struct, frozen=True):
    """The numbers of a floating-point dtype.

    Attributes:
        n_bits: Bits of the fraction.
        smallest: The smallest normal number.
        largest: The largest finite number.
    """

    n_bits: int
    smallest: float
    largest: float

    @classmethod
    def of(cls, dtype: DType) -> _Grid:
        import ml_dtypes

        nothing = adapter_for("numpy").from_elements(np.empty(0, dtype.bits_name), dtype)
        facts = ml_dtypes.finfo(nothing.dtype)  # type: ignore[no-untyped-call]
        return cls(int(facts.nmant), float(facts.smallest_normal), float(facts.max))


def round_at_random(wide: Array, bits: npt.NDArray[Any], dtype: DType) -> Array:
    """Return F32 or F64 in another dtype, none wider, as its bits; `bits` are random, and of the same width."""
    grid = _Grid.of(dtype)
    mask = bits.dtype.type(max(2 ** (np.finfo(wide.dtype).nmant - grid.n_bits) - 1, 0))
    kept = (wide.view(bits.dtype) + (bits & mask)) & ~mask  # a sum that carries is the next number up
    sizes = np.abs(wide)
    is_small = sizes < grid.smallest
    with np.errstate(all="ignore"):
        rounded = np.where(sizes <= grid.largest, kept.view(wide.dtype), wide)
        if is_small.any():
            rounded[is_small] = _rounded_to_steps(wide[is_small], bits[is_small], grid.smallest * 2.0**-grid.n_bits)
        cast: Array = adapter_for("numpy").cast(rounded, dtype)
    return cast.view(dtype.bits_name)


def _rounded_to_steps(wide: Array, bits: npt.NDArray[Any], step: float) -> Array:
    """Round numbers to multiples of a power of two."""
    steps = np.abs(wide.astype(np.float64)) / step
    below = np.floor(steps)
    chance = bits.astype(np.float64) * 2.0 ** -(8 * bits.dtype.itemsize)
    rounded = (below + (chance < steps - below)) * step
    return np.copysign(rounded, wide).astype(wide.dtype)
