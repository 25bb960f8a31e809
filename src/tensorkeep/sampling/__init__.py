"""A bounded part of a tensor, to be looked at.

- `_window`: which elements: a plane of two dimensions, and ranges of its rows and columns. Pure.
- `_reading`: parts of tensors as NumPy arrays, as far as they cost little.
- `_sample`: rows and columns at equal distances, of one tensor or of the difference of two.
"""

from tensorkeep.sampling._reading import Numbers, as_numbers, in_numpy, is_cheap, refuse_costly
from tensorkeep.sampling._sample import Sample, numbers_at, sample
from tensorkeep.sampling._window import Window, plane_of

__all__ = [
    "Numbers",
    "Sample",
    "Window",
    "as_numbers",
    "in_numpy",
    "is_cheap",
    "numbers_at",
    "plane_of",
    "refuse_costly",
    "sample",
]
