"""What the numbers of tensors are like, as the page draws it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tensorkeep.measuring import Histogram, TensorStatistics, statistics
from tensorkeep.parallel import Progress
from tensorkeep.tensors import LazyTensor
from tensorkeep.viewing._json import number

_OTHER_FACTS: Final = {"name", "dtype", "shape", "problem"}


def measured(lazy: LazyTensor, progress: Progress) -> dict[str, Any]:
    """Read a whole tensor, and return what its numbers are like."""
    return members(statistics(lazy, progress=progress))


def members(found: TensorStatistics) -> dict[str, Any]:
    """Return statistics as JSON has them."""
    facts = msgspec.structs.asdict(found)
    return {name: _member(value) for name, value in facts.items() if name not in _OTHER_FACTS}


def _member(value: Histogram | float | None) -> Any:
    if isinstance(value, Histogram):
        return {"edges": list(map(number, value.edges)), "counts": value.counts}
    return number(value)
