"""Some broken files of every kind; `make fuzz` breaks thousands of each, `make soak` hundreds of thousands."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.kinds.run import Tally, run
from fuzz.kinds.seeds import read_seeds, write_seeds
from tests.support.soak import SEED, rounds


@pytest.mark.soak
def test_broken_files_of_all_kinds_give_values_or_our_errors(tmp_path: Path) -> None:
    count = rounds(10, 200_000)
    write_seeds(tmp_path / "seeds")
    seeds = read_seeds(tmp_path / "seeds")
    tally = Tally(tmp_path / "failed")

    run(seeds, count, SEED * 1_000_000, tmp_path / "broken", tally)

    if tally.failures:
        pytest.fail(tally.report(), pytrace=False)
    assert {outcomes.total() for outcomes in tally.outcomes.values()} == {count}
    assert sum(outcomes["value"] for outcomes in tally.outcomes.values()) < count * len(seeds)
