"""A part of a tree: entries that are not wanted go, items become None, references are followed."""

from __future__ import annotations

import io
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

import tensorkeep
from tensorkeep.errors import IntegrityError
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


class Counted(io.BytesIO):
    """A file that counts the bytes read from it."""

    nbytes_read = 0

    def readinto(self, buffer: Any, /) -> int:
        n = super().readinto(buffer)
        self.nbytes_read += n
        return n

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.nbytes_read += len(data)
        return data


def test_of_a_large_tensor_only_what_the_chosen_views_cover_is_read(tmp_path: Path) -> None:
    base = torch.arange(1_000_000, dtype=torch.float32).reshape(1000, 1000)
    state = {"base": base, "row": base[500, 3:], "column": base[499:502, 7], "bits": base[500].view(torch.int32)[5:9]}
    tensorkeep.save(state, tmp_path / "state.safetensors")

    def load(only: Any, **options: Any) -> tuple[dict[str, torch.Tensor], int]:
        file = Counted((tmp_path / "state.safetensors").read_bytes())
        loaded = tensorkeep.load(file, only=only, **options)
        assert all(torch.equal(tensor, state[name]) for name, tensor in loaded.items())
        return loaded, file.nbytes_read

    loaded, nbytes = load("row")
    assert nbytes < 200_000
    assert loaded["row"].untyped_storage().nbytes() < 4100
    loaded, nbytes = load(["row", "column", "bits"])
    assert nbytes < 200_000
    loaded["row"][4] = -1
    assert loaded["column"][1] == -1, "they share memory"
    assert len({tensor.untyped_storage().data_ptr() for tensor in loaded.values()}) == 1

    assert load(["base", "row"])[0]["row"].untyped_storage().nbytes() == base.nbytes
    assert load(None)[0]["row"].untyped_storage().nbytes() == base.nbytes
    assert load("row", verify=True)[1] > base.nbytes, "a digest is of all of it"
    content = bytearray((tmp_path / "state.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "state.safetensors").write_bytes(content)
    with pytest.raises(IntegrityError):
        load("row", verify=True)


def test_views_without_elements_need_no_bytes(tmp_path: Path) -> None:
    base = torch.ones(100)
    tensorkeep.save({"base": base, "nothing": base[50:50], "some": base[99:]}, tmp_path / "state.safetensors")

    assert tensorkeep.load(tmp_path / "state.safetensors", only="nothing")["nothing"].shape == (0,)
    assert tensorkeep.load(tmp_path / "state.safetensors", only=["nothing", "some"])["some"].item() == 1
