"""Operations on tensors of a CUDA or XPU device for formulas of quantized numbers: `Arithmetic`.

Each is a kernel of its own, so that nothing is rounded less often than NumPy does it, such as by a fused
multiplication and addition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from tensorkeep.arrays.torch.streams import STREAMS

Table: TypeAlias = npt.NDArray[Any]

_SHIFTS: Final = {bits: np.arange(0, 8, bits, dtype=np.uint8) for bits in range(1, 8)}
_PLACES: Final = {bits: np.arange(bits, dtype=np.uint8) for bits in range(1, 8)}


class TorchArithmetic:
    """Operations of torch on one device, in its current stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._tables: dict[int, tuple[Table, torch.Tensor]] = {}

    def floats(self, array: torch.Tensor) -> torch.Tensor:
        """Return numbers as F32."""
        return array.to(torch.float32)

    def shorts(self, array: torch.Tensor) -> torch.Tensor:
        """Return numbers as I16."""
        return array.to(torch.int16)

    def integers(self, array: torch.Tensor) -> torch.Tensor:
        """Return numbers as I64."""
        return array.to(torch.int64)

    def view(self, array: torch.Tensor, dtype: str) -> torch.Tensor:
        """Return the memory of a tensor as another dtype."""
        return array.contiguous().view(getattr(torch, dtype))

    def constant(self, table: Table) -> torch.Tensor:
        """Return a table on the device, where it stays as long as this object."""
        if id(table) not in self._tables:
            self._tables[id(table)] = table, torch.from_numpy(table.copy()).to(self._device)
        return self._tables[id(table)][1]

    def look_up(self, table: Table, places: torch.Tensor) -> torch.Tensor:
        """Return the elements, or rows, of a table at places."""
        found = self.constant(table).index_select(0, places.reshape(-1).int())
        return found.reshape(*places.shape, *table.shape[1:])

    def pairs(self, table: Table, packed: torch.Tensor, *, is_high_first: bool = False) -> torch.Tensor:
        """Return two elements of a table for each byte."""
        numbers = self.look_up(table, self.apart(packed, 4))
        return numbers.reshape(*packed.shape, 2).flip(-1).flatten(-2) if is_high_first else numbers

    def apart(self, packed: torch.Tensor, bits: int) -> torch.Tensor:
        """Return the numbers of some bits in rows of bytes."""
        if bits == 8:
            return packed
        if 8 % bits == 0:
            return self._fields(packed, bits)
        stream = self._fields(packed, 1).reshape(*packed.shape[:-1], -1, bits)
        return (stream << self.constant(_PLACES[bits])).sum(-1, dtype=torch.uint8)

    def _fields(self, packed: torch.Tensor, bits: int) -> torch.Tensor:
        """Return the numbers in each byte, side by side."""
        numbers = torch.bitwise_right_shift(packed[..., None], self.constant(_SHIFTS[bits])).bitwise_and_(2**bits - 1)
        return numbers.flatten(-2)

    def positions(self, places: range) -> torch.Tensor:
        """Return whole numbers in ascending order."""
        return torch.arange(places.start, places.stop, device=self._device)

    def take(self, array: torch.Tensor, places: torch.Tensor, axis: int) -> torch.Tensor:
        """Return what is at places along a dimension."""
        return array.index_select(axis, places)

    def repeat(self, array: torch.Tensor, n: int) -> torch.Tensor:
        """Return each element `n` times."""
        return array.repeat_interleave(n)

    def join(self, arrays: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return tensors as one."""
        return torch.cat(list(arrays), dim=-1)

    def pad(self, array: torch.Tensor, n: int) -> torch.Tensor:
        """Return a tensor with zeros added."""
        return torch.cat([array, array.new_zeros((*array.shape[:-1], n))], dim=-1)

    def where(self, condition: torch.Tensor, chosen: Any, other: Any) -> torch.Tensor:
        """Return elements of one tensor or of another."""
        return torch.where(condition != 0, chosen, other)

    def wait(self) -> None:
        """Wait until everything that was begun is computed."""
        STREAMS[self._device.type].current_stream(self._device).synchronize()
