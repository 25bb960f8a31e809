"""The rules of a store are kept in it, and no step is lost because a process was given others."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.errors import FormatError, SourceMissingError, UnsupportedError
from tensorkeep.store import RULES_NAME, Retention, RetentionWarning, StepRecord
from tests.support.store.run_states import store

RULES = {"version": 1, "keep_last": 3, "keep_best": 1, "keep_every": None, "monitor": "valid_loss", "mode": "min"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "run"


def save(root: Path, *steps: int, **rules: Any) -> list[int]:
    """Save steps with a loss that gets worse, and return the steps that there are then."""
    kept = store(root, **rules)
    for step in steps:
        kept.save(step, {"step": step}, {"valid_loss": step, "acc": -step})
    return kept.steps()


def rules_in(root: Path) -> dict[str, Any]:
    rules: dict[str, Any] = json.loads((root / RULES_NAME).read_text())
    return rules


def test_rules_left_out_are_those_of_the_store(root: Path) -> None:
    assert save(root, *range(10), keep_last=None) == [*range(10)]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert save(root, 10) == [*range(11)]
    assert rules_in(root) == {**RULES, "keep_last": None}


def test_other_rules_remove_nothing_and_warn_once(root: Path) -> None:
    save(root, *range(5), keep_last=None)

    with pytest.warns(
        RetentionWarning, match=r"no step is removed: it was opened with keep_last=3, but .*None"
    ) as caught:
        assert save(root, 5, 6, keep_last=3) == [*range(7)]

    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert rules_in(root)["keep_last"] is None


def test_a_forgotten_metric_does_not_lose_the_best(root: Path) -> None:
    save(root, 1, 2, 3, keep_last=1, monitor="acc", mode="max")

    kept = store(root)
    kept.save(4, {"step": 4})
    assert kept.steps() == [1, 4]
    assert (kept.best(), kept.load("best")) == (1, {"step": 1})
    assert store(root, monitor="acc").best() == 1
    assert store(root, monitor="valid_loss").best() == 1, "the mode of another metric is not taken over"
    with pytest.warns(RetentionWarning, match="opened with monitor='valid_loss', but"):
        assert save(root, 5, monitor="valid_loss") == [1, 4, 5]


def test_rules_that_keep_more_are_recorded(root: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(root, 1, 2, 3, keep_last=1)
        assert save(root, 4, 5, keep_last=2) == [1, 4, 5]
        assert rules_in(root)["keep_last"] == 2
        assert save(root, 6, 7, keep_last=None) == [1, 4, 5, 6, 7]
        assert rules_in(root)["keep_last"] is None


def test_told_to_prune_a_save_replaces_the_rules(root: Path) -> None:
    save(root, *range(5), keep_last=None)

    assert save(root, 5, keep_last=2, prune=True) == [0, 4, 5]
    assert rules_in(root)["keep_last"] == 2
    assert save(root, 6) == [0, 5, 6]


def test_prune(root: Path) -> None:
    with pytest.raises(SourceMissingError, match="No such file or directory"):
        store(root, keep_last=1).prune()
    save(root, *range(5), keep_last=None)
    before = sorted(root.iterdir())

    assert store(root).prune() == []
    assert store(root, keep_last=2).prune(dry_run=True) == [1, 2]
    assert sorted(root.iterdir()) == before
    assert rules_in(root)["keep_last"] is None
    assert store(root, keep_last=2).prune() == [1, 2]
    assert store(root).steps() == [0, 3, 4]
    assert rules_in(root)["keep_last"] == 2


def test_two_processes_with_different_rules(root: Path) -> None:
    all_of_them, few = store(root, keep_last=None), store(root, keep_last=1)
    few.save(1, {})
    few.save(2, {})
    all_of_them.save(3, {})

    with pytest.warns(RetentionWarning, match="keep_last=1, but"):
        few.save(4, {})
    all_of_them.save(5, {})

    assert few.steps() == [2, 3, 4, 5]


def test_a_store_without_rules_that_fit_is_continued(root: Path) -> None:
    save(root, 1, 2, 3, 4, keep_last=2)
    (root / RULES_NAME).unlink()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert save(root, 5, keep_last=2) == [1, 4, 5]
    assert rules_in(root)["keep_last"] == 2


def test_a_store_without_rules_loses_nothing_unless_told_to(root: Path) -> None:
    save(root, *range(10), keep_last=None)
    (root / RULES_NAME).unlink()

    with pytest.warns(
        RetentionWarning, match="rules of its steps are not known, and these would remove some"
    ) as caught:
        assert save(root, 10, 11) == [*range(12)]
    assert len(caught) == 1
    with pytest.raises(UnsupportedError, match="the rules of the store are not known"):
        store(root).prune()
    with pytest.warns(RetentionWarning, match="not known"):
        assert save(root, 12, prune=True) == [*range(13)]
    assert not (root / RULES_NAME).exists()

    assert save(root, 13, keep_last=None) == [*range(14)]
    assert rules_in(root) == {**RULES, "keep_last": None}


def test_a_store_without_steps_takes_any_rules(root: Path) -> None:
    save(root, 1, keep_last=None)
    store(root).remove(1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(root, 2, keep_last=1)
    assert rules_in(root)["keep_last"] == 1


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\0" * 100,
        b"[" * 60_000,
        b'{"version": 1}',
        b'{"version": 1, "keep_last": 3, "keep_best"',
        json.dumps({**RULES, "keep_last": 0}).encode(),
        json.dumps({**RULES, "keep_daily": 1}).encode(),
        json.dumps({**RULES, "monitor": "x"}).encode().replace(b"x", b"\xff"),
    ],
)
def test_damaged_rules_remove_nothing(root: Path, text: bytes) -> None:
    save(root, 1, 2, 3, keep_last=1)
    (root / RULES_NAME).write_bytes(text)

    with pytest.warns(RetentionWarning, match="no step is removed: the rules of the store are damaged") as caught:
        assert save(root, 4, 5) == [1, 3, 4, 5]
    assert len(caught) == 1
    with pytest.raises(FormatError, match=f"the rules of the store are damaged.*{RULES_NAME}"):
        store(root).best()
    assert store(root).latest() == 5
    with pytest.warns(RetentionWarning, match="not known which step is the best"):
        assert [step.is_best for step in store(root).listing()] == [False] * 4
    with pytest.raises(FormatError):
        store(root, prune=True).prune()

    assert save(root, 6, keep_last=1, prune=True) == [1, 6]
    assert rules_in(root)["keep_last"] == 1


def test_rules_of_a_later_version_are_obeyed_by_leaving_all(root: Path) -> None:
    save(root, 1, 2, keep_last=1)
    later = json.dumps({"version": 2, "keep_daily": 7})
    (root / RULES_NAME).write_text(later)

    with pytest.warns(RetentionWarning, match="need a later version"):
        assert save(root, 3, 4, keep_last=1, prune=True) == [1, 2, 3, 4]
    with pytest.raises(UnsupportedError, match="need a later version"):
        store(root, keep_last=1).prune()
    assert (root / RULES_NAME).read_text() == later


def test_rules_that_cannot_be_recorded_do_not_stop_a_save(root: Path) -> None:
    root.mkdir()
    (root / RULES_NAME).mkdir()

    with pytest.warns(RetentionWarning, match="no step is removed"):
        assert save(root, 1, 2, keep_last=1) == [1, 2]


def test_looking_changes_nothing(root: Path) -> None:
    save(root, 1, 2)
    (root / RULES_NAME).unlink()
    kept = store(root, keep_last=1, prune=True)

    assert (kept.steps(), kept.latest(), kept.best(), kept.load()) == ([1, 2], 2, 1, {"step": 2})
    assert len(kept.listing()) == 2
    assert RULES_NAME not in os.listdir(root)


_RULES = st.builds(
    Retention,
    keep_last=st.none() | st.integers(1, 4),
    keep_best=st.none() | st.integers(0, 3),
    keep_every=st.none() | st.sampled_from([1, 2, 3, 4, 6]),
    monitor=st.sampled_from(["a", "b"]),
    mode=st.sampled_from(["min", "max"]),
)


@given(_RULES, _RULES, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=8))
def test_rules_that_keep_all_of_others_do_so_for_any_steps(
    rules: Retention, others: Retention, metrics: list[tuple[int, int]]
) -> None:
    records = [StepRecord(n, {"a": a, "b": b}, f"{n:02d}") for n, (a, b) in enumerate(metrics)]

    if rules.keeps_all_of(others):
        assert set(rules.to_remove(records, None)) <= set(others.to_remove(records, None))
    assert rules.keeps_all_of(rules)
