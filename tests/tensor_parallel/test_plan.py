"""Which pattern of a plan decides."""

from __future__ import annotations

import time

import pytest

from tensorkeep.errors import LimitError, RefusedError
from tensorkeep.tensor_parallel._plan import PatternPlan
from tensorkeep.tensor_parallel._rules import WHOLE, Rule, parse_rule


def plan(styles: dict[str, str]) -> PatternPlan:
    return PatternPlan(styles, lambda: lambda _: Rule("first"))


@pytest.mark.parametrize(
    ("styles", "expected"),
    [
        ({"a.q.weight": "colwise", "*": "rowwise"}, "colwise"),
        ({"*": "rowwise", "a.q.weight": "colwise"}, "rowwise"),
        ({"a.q": "colwise", "*.q": "rowwise"}, "colwise"),
        ({"a.q": "colwise", "a.q.weight": "rowwise"}, "colwise"),
        ({"?.[pq]": "colwise"}, "colwise"),
        ({"*.q": "model"}, "experts"),
        ({"*.Q": "colwise"}, "replicate"),
    ],
)
def test_the_first_that_matches_counts(styles: dict[str, str], expected: str) -> None:
    assert plan(styles).rule_of("a.q.weight") == parse_rule(expected)


def test_names_may_be_many_and_patterns_few() -> None:
    begun = time.process_time()
    names = [f"layers.{number}.weight" for number in range(20_000)]
    found = plan({**dict.fromkeys(names, "colwise"), "*.bias": "replicate"})
    assert all(found.rule_of(name) != WHOLE for name in names)
    with pytest.raises(RefusedError, match=r"match no tensor.*\*\.bias"):
        found.refuse_unused(names)
    assert time.process_time() - begun < 5
    with pytest.raises(LimitError, match="too many patterns"):
        plan({f"*.{number}": "colwise" for number in range(1_001)})
