"""Statistics of tensors: extremes, mean, spread, histograms, zeros, NaNs and infinities, in bounded memory.

- `_result`: `TensorStatistics` and `Histogram`. Pure.
- `_bins`: counts of numbers by value and by magnitude, from which histograms are made. Pure.
- `_moments`: mean, spread and extremes of numbers that come in parts. Pure.
- `_tallies`: what is counted of the elements of a tensor, by their bits or one by one. Pure.
- `_measure`: reads tensors in parts, in parallel.
- `_statistics`: `statistics`, of a tensor, a file or a checkpoint.
"""

from tensorkeep.measuring._result import Histogram, TensorStatistics
from tensorkeep.measuring._statistics import statistics
from tensorkeep.measuring._tallies import Facts, merged, tally_for

__all__ = [
    "Facts",
    "Histogram",
    "TensorStatistics",
    "merged",
    "statistics",
    "tally_for",
]
