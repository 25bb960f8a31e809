"""A part of a tree: entries that are not wanted go, items become None, references are followed."""

from __future__ import annotations

from fnmatch import fnmatchcase

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tensorkeep.state import NamedData, selected, tensor_names
from tests.support.soak import rounds
from tests.support.state.codec import decode, encode, round_trip
from tests.support.state.exactly import assert_exactly
from tests.support.state.states import CLASSES, Config, states

WEIGHT, BIAS = np.zeros(2), np.ones(2)
MODEL = {"weight": WEIGHT, "bias": BIAS}
STATE = {
    "model": MODEL,
    "ema": MODEL,
    "steps": [1, {"loss": 0.5}, (2, 3)],
    "config": Config(1, {"a": 2}),
    "empty": {"x": {}},
    "notes": b"x" * 5000,
    "seen": {1, 2},
    5: "five",
}
PARTS = {
    "model.*": {"model": MODEL},
    "model": {"model": MODEL},
    "model.weight": {"model": {"weight": WEIGHT}},
    "ema.weight": {"ema": {"weight": WEIGHT}},
    "*.weight": {"model": {"weight": WEIGHT}, "ema": {"weight": WEIGHT}},
    "steps.1": {"steps": [None, {"loss": 0.5}, None]},
    "steps.2.0": {"steps": [None, None, (2, None)]},
    "config.options": {"config": Config(None, {"a": 2})},
    "empty.*": {"empty": {"x": {}}},
    "notes": {"notes": b"x" * 5000},
    "seen": {"seen": {1, 2}},
    "seen.0": {},
    "5": {5: "five"},
    "nothing": {},
    "*": STATE,
}


@pytest.mark.parametrize("pattern", PARTS)
def test_parts(pattern: str) -> None:
    part = round_trip(STATE, classes=[Config], wanted=lambda path: fnmatchcase(path, pattern))

    assert_exactly(part, PARTS[pattern], shares_memory=False)


def test_what_is_wanted_in_two_places_is_one_object() -> None:
    whole = round_trip(STATE, wanted=lambda path: path in {"model", "ema"})
    second = round_trip([STATE["model"], {"a": STATE}], wanted=lambda path: path == "1.a.ema")

    assert whole["model"] is whole["ema"]
    assert whole["model"]["weight"] is WEIGHT
    assert second == [None, {"a": {"ema": MODEL}}]


def test_only_what_is_wanted_is_asked_for() -> None:
    encoded = encode(STATE)
    part = selected(encoded.tree, lambda path: path == "ema.bias")

    assert [(name, path) for name, path, _ in tensor_names(part)] == [("model.bias", "ema.bias")]
    assert_exactly(decode(part, {"model.bias": BIAS}), {"ema": {"bias": BIAS}})


def test_unknown_objects_have_their_fields() -> None:
    part = round_trip({"config": Config(1, 2)}, wanted=lambda path: path == "config.width")

    assert part == {"config": NamedData("dataclass", f"{Config.__module__}:Config", {"width": 1, "options": None})}


@settings(max_examples=rounds(150, 10_000), deadline=None, suppress_health_check=list(HealthCheck))
@given(states())
def test_the_part_of_all_is_the_whole(value) -> None:
    assert_exactly(round_trip(value, classes=CLASSES, wanted=lambda path: True), value)


@settings(max_examples=rounds(125, 5_000), deadline=None, suppress_health_check=list(HealthCheck))
@given(states())
def test_the_whole_in_an_entry_is_the_whole(value) -> None:
    around = {"before": value, "it": value, "after": [value]}

    part = round_trip(around, classes=CLASSES, wanted=lambda path: path.split(".")[0] == "it")

    assert list(part) == ["it"]
    assert_exactly(part["it"], value, shares_memory=False)
