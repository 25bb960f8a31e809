"""Some thousands of broken states; `make fuzz` reads many more."""

from __future__ import annotations

import pytest

from fuzz.states import run


@pytest.mark.parametrize("seed", [1, 2])
def test_broken_states_give_a_value_or_an_error_of_ours(seed: int) -> None:
    outcomes, failures = run(1_000, seed)

    assert failures == []
    assert outcomes["FormatError"] > 1_000
    assert outcomes["value"] > 500
