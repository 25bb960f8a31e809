"""Two tensors of one shape, number by number: how far one has moved from the other."""

from __future__ import annotations

from math import prod
from typing import Any

from tensorkeep.checkpoint import compare_numbers
from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import UnsupportedError
from tensorkeep.measuring import Facts, TensorStatistics, merged, tally_for
from tensorkeep.parallel import Progress
from tensorkeep.tensors import LazyTensor, numeric
from tensorkeep.viewing._json import number
from tensorkeep.viewing.answers._statistics import members


def difference(a: LazyTensor, b: LazyTensor, progress: Progress) -> dict[str, Any]:
    """Return the statistics of b - a as JSON has them."""
    a, b = numeric(a), numeric(b)
    refuse_other_shape(a, b)
    n = prod(a.shape)
    tally = tally_for(ALL_BY_NAME["F64"])
    change = compare_numbers(a, b, lambda done: progress(a.nbytes * done // n, a.nbytes), tally.add)
    found: TensorStatistics = merged([tally], Facts(a.name, "F64", a.shape, n))
    return {
        **members(found),
        "norm_a": number(change.norm_a),
        "relative": number(change.relative),
        "n_different": change.n_different,
    }


def refuse_other_shape(a: LazyTensor, b: LazyTensor) -> None:
    """Refuse two tensors that cannot be compared element by element."""
    if a.shape != b.shape:
        raise UnsupportedError(
            "the tensors have different shapes", tensor=a.name, expected=str(list(a.shape)), found=str(list(b.shape))
        )
