"""What formulas of quantized numbers need besides operators and indices, so that each is written once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

from tensorkeep.arrays._base import DenseArrays

if TYPE_CHECKING:
    import numpy as np

    Table: TypeAlias = np.ndarray[Any, Any]
    """An array of NumPy that a module keeps, so that a device needs it only once."""


class Arithmetic(Protocol):
    """Operations on one library's arrays, on one device. Equal arrays give equal bits, whatever the library."""

    def floats(self, array: Any) -> Any:
        """Return numbers as F32."""

    def shorts(self, array: Any) -> Any:
        """Return numbers as I16."""

    def integers(self, array: Any) -> Any:
        """Return numbers as I64."""

    def view(self, array: Any, dtype: str) -> Any:
        """Return the memory of an array, lowest byte first, as another of NumPy's dtypes.

        There must be a last dimension; it is counted in elements of that dtype.
        """

    def constant(self, table: Table) -> Any:
        """Return a table as an array of the library."""

    def look_up(self, table: Table, places: Any) -> Any:
        """Return the elements, or rows, of a table at places of any dtype of whole numbers."""

    def pairs(self, table: Table, packed: Any, *, is_high_first: bool = False) -> Any:
        """Return two elements of a table of 16 for each byte, side by side along the last dimension."""

    def apart(self, packed: Any, bits: int) -> Any:
        """Return the numbers of some bits in rows of bytes, lowest first and across bytes.

        The last dimension must be whole groups: a multiple of `bits` bytes unless `bits` divides 8.
        """

    def positions(self, places: range) -> Any:
        """Return whole numbers in ascending order."""

    def take(self, array: Any, places: Any, axis: int) -> Any:
        """Return what is at places, in I64, along a dimension."""

    def repeat(self, array: Any, n: int) -> Any:
        """Return each element of an array of one dimension `n` times."""

    def join(self, arrays: Sequence[Any]) -> Any:
        """Return arrays as one, side by side along the last dimension."""

    def pad(self, array: Any, n: int) -> Any:
        """Return an array with `n` zeros added to its last dimension."""

    def where(self, condition: Any, chosen: Any, other: Any) -> Any:
        """Return elements of one array where a number is not 0, and of another elsewhere."""

    def wait(self) -> None:
        """Wait until everything that was begun is computed."""


class ComputingArrays(DenseArrays, Protocol):
    """Tensors of a library with operations for formulas."""

    def arithmetic(self) -> Arithmetic:
        """Return the operations on the adapter's device."""


def computes(adapter: DenseArrays) -> TypeGuard[ComputingArrays]:
    """Whether an adapter has `arithmetic`."""
    return hasattr(adapter, "arithmetic")
