"""What arrived? Questions about a model and a checkpoint that change neither.

- `_coverage_of`: `coverage`: which bytes go into which parameters.
- `_assert_loaded`: `assert_loaded`: does the model have the checkpoint's values?
"""

from tensorkeep.models.arrival._assert_loaded import assert_loaded
from tensorkeep.models.arrival._coverage_of import coverage

__all__ = [
    "assert_loaded",
    "coverage",
]
