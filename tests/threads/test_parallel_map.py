"""Work that is shared out to threads."""

from __future__ import annotations

import pytest

from tensorkeep.parallel import ProgressMeter, parallel_map


@pytest.mark.parametrize("n_threads", [1, 4])
@pytest.mark.parametrize("n_items", [0, 1, 20])
def test_results_are_in_order(n_items: int, n_threads: int) -> None:
    meter = ProgressMeter(None, 0)

    assert parallel_map(lambda n: n * n, iter(range(n_items)), n_threads=n_threads, meter=meter) == [
        n * n for n in range(n_items)
    ]
    meter.add(1)  # nothing was stopped


def test_the_failure_is_raised_not_what_it_stopped() -> None:
    def work(n: int) -> int:
        if n == 7:
            raise ValueError(str(n))
        return n

    with pytest.raises(ValueError, match="7"):
        parallel_map(work, range(20), n_threads=4, meter=ProgressMeter(None, 0))
