"""Statistics of a tensor as a value. Pure."""

from __future__ import annotations

import msgspec


class Histogram(msgspec.Struct, frozen=True):
    """How many numbers lie between neighboring edges; empty without numbers.

    Attributes:
        edges: Edges of the bins, ascending, one more than bins. A bin includes its lower edge and not its upper one.
        counts: Numbers in each bin.
    """

    edges: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()


class TensorStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What the numbers of a tensor are like.

    NaNs and infinities are counted, and left out of everything else. Booleans are 0 and 1. Complex numbers count with
    their magnitudes, and are NaN if either part is. All sums are float64; what overflows it is infinite. Integers
    of 64 bits are rounded to float64, except for `min` and `max`.

    Attributes:
        name: The tensor's name.
        dtype: Its dtype, such as `"BF16"`; of quantized tensors the type of their blocks.
        shape: Its shape.
        n_elements: Number of elements.
        n_nan: Number of NaNs.
        n_inf: Number of infinities, of either sign.
        n_zeros: Number of zeros, of either sign.
        n_distinct: Number of different values, if elements have at most 16 bits; otherwise None. 0 and -0 are one
            value, and so are all NaNs.
        min: Smallest number; None without numbers.
        max: Largest number; None without numbers.
        mean: Mean; for elements of at most 16 bits, the exact mean rounded to float64. None without numbers.
        std: Standard deviation of the population (divided by the count); None without numbers.
        norm: Euclidean norm, the root of the sum of squares: 0 if there are no numbers.
        histogram: Numbers by value, in at most 64 bins of equal width. The width is a power of two, the edges are
            multiples of it. It is the smallest such width that suffices, but at least 1/4096 of the range from -2^k
            to 2^k that holds all numbers, and for integers at least 1.
        magnitudes: Numbers by magnitude, without zeros: each bin is from one power of two to the next, for
            F64 none below 2^-1022.
        problem: Why the numbers are not known, as for dtypes of later versions; None if they are.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    n_elements: int
    n_nan: int = 0
    n_inf: int = 0
    n_zeros: int = 0
    n_distinct: int | None = None
    min: float | int | None = None
    max: float | int | None = None
    mean: float | None = None
    std: float | None = None
    norm: float = 0.0
    histogram: Histogram = Histogram()
    magnitudes: Histogram = Histogram()
    problem: str | None = None

    @property
    def n_numbers(self) -> int:
        """Number of elements that are neither NaN nor infinite; 0 if the numbers are not known."""
        return 0 if self.problem is not None else self.n_elements - self.n_nan - self.n_inf
