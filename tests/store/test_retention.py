"""Which steps are kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.store import Retention, StepRecord, best_steps

NAN = math.nan


def rules(**given: Any) -> Retention:
    return Retention(**{
        "keep_last": 3,
        "keep_best": 1,
        "keep_every": None,
        "monitor": "loss",
        "mode": "min",
        **given,
    })


def steps_of(*losses: float | None) -> dict[int, dict[str, float]]:
    """Return steps 100, 200, … with their losses."""
    return {100 * n: {} if loss is None else {"loss": loss} for n, loss in enumerate(losses, start=1)}


def records(steps: Mapping[int, dict[str, float]], order: Iterable[int] | None = None) -> list[StepRecord]:
    """Return what is said of steps that were saved in an order, which is that of their numbers if none is given."""
    return [
        StepRecord(step, steps[step], f"2027-01-31T12:00:00.{n:06d}+00:00")
        for n, step in enumerate(sorted(steps) if order is None else order)
    ]


@pytest.mark.parametrize(
    ("retention", "losses", "removed"),
    [
        (rules(), [4, 3, 2, 1], [100]),
        (rules(), [1, 2, 3, 4, 5], [200]),
        (rules(keep_best=0), [1, 2, 3, 4], [100]),
        (rules(keep_best=None), [1, 2, None, 4, 5, 6, 7], [300]),
        (rules(keep_last=None), [1, 2, 3, 4, 5], []),
        (rules(keep_last=1), [2, 1, 3], [100]),
        (rules(keep_last=1, keep_every=200), [1, 2, 3, 4, 5], [300]),
        (rules(keep_last=1, mode="max"), [2, 3, 1, 0], [100, 300]),
        (rules(keep_last=1), [NAN, 5, NAN, NAN], [100, 300]),
        (rules(keep_last=1), [-math.inf, 5, math.inf, 6], [200, 300]),
        (rules(keep_last=1), [1, 1, 1, 1], [200, 300]),
        (rules(keep_last=1, keep_best=2), [3, 1, 2, 4], [100]),
        (rules(keep_last=1, monitor="other"), [3, 1, 2], [100, 200]),
        (rules(), [], []),
    ],
)
def test_a_step_is_kept_if_any_rule_names_it(
    retention: Retention, losses: list[float | None], removed: list[int]
) -> None:
    steps = steps_of(*losses)

    assert retention.to_remove(records(steps), saved=max(steps, default=0)) == removed


def test_what_was_just_saved_is_kept_though_newer_steps_are_there() -> None:
    steps = steps_of(None, None, None, None, None)

    assert rules(keep_last=2).to_remove(records(steps), saved=200) == [100, 300]


def test_the_last_steps_are_those_that_were_saved_last() -> None:
    steps = steps_of(None, None, None, None, None)

    assert rules(keep_last=2).to_remove(records(steps, [100, 400, 500, 200, 300]), saved=300) == [100, 400, 500]


def test_of_steps_of_one_instant_the_higher_ones_are_the_last() -> None:
    at_once = [StepRecord(step, {}, "2027-01-31T12:00:00.000000+00:00") for step in (3, 20, 100)]

    assert rules(keep_last=2).to_remove(at_once, saved=20) == [3]


@given(
    steps=st.dictionaries(st.integers(0, 50), st.dictionaries(st.just("loss"), st.floats(), max_size=1), max_size=20),
    keep_last=st.none() | st.integers(1, 5),
    keep_best=st.none() | st.integers(0, 3),
    keep_every=st.none() | st.integers(1, 10),
    mode=st.sampled_from(["min", "max"]),
    data=st.data(),
)
def test_rules_hold_for_any_steps(
    steps: dict[int, dict[str, float]],
    keep_last: int | None,
    keep_best: int | None,
    keep_every: int | None,
    mode: Any,
    data: st.DataObject,
) -> None:
    saved = data.draw(st.sampled_from(sorted(steps))) if steps else 0
    order = data.draw(st.permutations(sorted(steps)))
    retention = rules(keep_last=keep_last, keep_best=keep_best, keep_every=keep_every, mode=mode)

    whole = records(steps, order)
    removed = retention.to_remove(data.draw(st.permutations(whole)), saved)
    kept = steps.keys() - set(removed)

    assert set(removed) <= steps.keys() - {saved}
    assert kept >= set(order[-(keep_last or 50) :])
    assert kept >= {step for step in steps if keep_every and step % keep_every == 0}
    best = best_steps(steps, "loss", mode)[:keep_best]
    assert kept >= set(best)
    worse = [steps[step]["loss"] for step in best_steps(steps, "loss", mode)[len(best) :]]
    sign = 1 if mode == "min" else -1
    assert all(sign * steps[step]["loss"] <= sign * loss for step in best for loss in worse)
    after = [record for record in whole if record.step in kept]
    assert retention.to_remove(after, saved) == [], "what is kept once is kept again"


def test_the_best_of_equal_ones_is_the_first() -> None:
    assert best_steps(steps_of(2, 1, 1, None, NAN), "loss", "min") == [200, 300, 100]
    assert best_steps(steps_of(2, 1, 2, None, NAN), "loss", "max") == [100, 300, 200]


def test_damaged_steps_go_when_enough_whole_ones_came_after_them() -> None:
    retention = rules(keep_last=2)

    assert retention.damaged_to_remove([1, 5, 9], [2, 4, 6, 8]) == [1, 5]
    assert retention.damaged_to_remove([1], [2]) == []
    assert rules(keep_last=None).damaged_to_remove([1], [2, 3, 4, 5]) == []
