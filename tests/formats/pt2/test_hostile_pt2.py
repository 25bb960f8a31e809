"""Broken programs of torch.export: each gives a value or one of our errors, quickly."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

import tensorkeep
from tensorkeep.errors import FormatError, TensorkeepError
from tests.support.formats.exported import replaced, rewritten, small

CONFIG = "data/weights/model_weights_config.json"


def entry(path_name: str = "weight_0", **meta: Any) -> dict[str, Any]:
    whole = {"dtype": 7, "sizes": [3, 4], "strides": [4, 1], "storage_offset": 0, "layout": 7} | meta
    for key in ("sizes", "strides"):
        whole[key] = [{"as_int": number} for number in whole[key]]
    whole["storage_offset"] = {"as_int": whole["storage_offset"]}
    return {"path_name": path_name, "is_param": True, "use_pickle": False, "tensor_meta": whole}


def program(**entries: Any) -> bytes:
    return rewritten(small(), {CONFIG: json.dumps({"config": entries}).encode()})


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"w": entry("weight_99")}, "are missing"),
        ({"w": entry("../constants/tensor_0")}, "are missing"),
        ({"w": entry("/etc/passwd")}, "are missing"),
        ({"w": entry(sizes=[4, 4])}, "larger than its storage"),
        ({"w": entry(storage_offset=1)}, "larger than its storage"),
        ({"w": entry(strides=[2**62, 1])}, "larger than its storage"),
        ({"w": entry(strides=[4, -1])}, "no tensor has the layout"),
        ({"w": entry(storage_offset=-1)}, "no tensor has the layout"),
        ({"w": entry(sizes=[2**63, 0])}, "no tensor has the layout"),
        ({"w": entry(sizes=[1] * 65, strides=[1] * 65)}, "no tensor has the layout"),
        ({"w": entry(strides=[1])}, "no tensor has the layout"),
        ({"w": entry(), "v": entry(dtype=5, sizes=[1], strides=[1])}, "another dtype"),
        ({"constant": entry()}, "two weights of the program have one name"),
        ({"w": {"path_name": 3}}, "is not what torch.export writes"),
        ({"w": entry("model_weights_config.json") | {"use_pickle": True}}, "not a zip archive"),
    ],
    ids=range(15),
)
def test_impossible_weights_are_refused(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        tensorkeep.open(program(**entries))


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"dtype": 99}, "not known, number 99"),
        ({"layout": 1}, "not strided"),
        ({"path_name": "weight_empty"}, "elements were not saved"),
    ],
    ids=["dtype", "layout", "empty"],
)
def test_what_is_not_read_is_listed(meta: dict[str, Any], message: str) -> None:
    data = rewritten(program(w=entry(**meta)), {"data/weights/weight_empty": b""})

    assert message in str(tensorkeep.open(data).unknowns["w"])


def test_names_that_occur_twice_are_refused() -> None:
    with pytest.raises(FormatError, match="names something twice"):
        tensorkeep.open(rewritten(small(), {CONFIG: replaced('"b.weight"', '"a.weight"')}))


@pytest.mark.parametrize("change", [b"", b"{", b"[]", b'{"config": 3}', b"[" * 100_000, b"\xff"], ids=range(6))
def test_lists_of_weights_that_are_none(change: bytes) -> None:
    with pytest.raises(FormatError, match="is not what torch"):
        tensorkeep.open(rewritten(small(), {CONFIG: change}))


def test_an_archive_of_another_kind_is_refused() -> None:
    with pytest.raises(FormatError, match="expected the format 'pt2'"):
        tensorkeep.open(rewritten(small(), {"archive_format": b"pt3"}))


def read_all(data: bytes) -> None:
    try:
        with tensorkeep.open(data) as file:
            file.load()
        tensorkeep.verify(data)
    except TensorkeepError:
        pass


def test_truncations_and_flips() -> None:
    data = small()
    for stop in range(0, len(data), 17):
        read_all(data[:stop])
    chance = random.Random(0)
    for _ in range(1000):
        broken = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        read_all(bytes(broken))


def test_twenty_thousand_weights_in_one_storage_open_quickly() -> None:
    data = program(**{f"layers.{number}.weight": entry() for number in range(20_000)})

    begun = time.perf_counter()
    assert len(tensorkeep.open(data)) == 20_000 + 1
    assert time.perf_counter() - begun < 5
