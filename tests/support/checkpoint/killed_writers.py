"""A program that kills writers and merges at random times: `killed_writers.py FOLDER HOW KILLS SEED`.

Prints one line of JSON: the kills, those that left something behind, and how often the new checkpoint was there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

import tensorkeep
from tensorkeep.merging import average, extract_lora
from tensorkeep.transforms import rewrite
from tests.support.kill_at_random import Ready, kill_at_random

NAMES: Final = [f"layer.{number}.weight" for number in range(12)]
SHAPE: Final = (40, 50)
KEY = tensorkeep.Key(bytes(32))
SHARD: Final = 20_000


def model(number: int) -> dict[str, np.ndarray]:
    """Return tensors whose elements are all one number."""
    return {name: np.full(SHAPE, number, np.float32) for name in NAMES}


def write_planned(target: Path, number: int) -> None:
    plan = dict.fromkeys(NAMES, ("f32", SHAPE))
    with tensorkeep.writing(target, plan, max_shard_size=SHARD) as writer:
        for name, array in model(number).items():
            writer[name] = array


def write_as_they_come(target: Path, number: int) -> None:
    with tensorkeep.writing(target, max_shard_size=SHARD) as writer:
        for name, array in model(number).items():
            writer[name] = array


def write_encrypted(target: Path, number: int) -> None:
    plan = dict.fromkeys(NAMES, ("f32", SHAPE))
    with tensorkeep.writing(target, plan, max_shard_size=SHARD, encrypt=KEY) as writer:
        for name, array in model(number).items():
            writer[name] = array


def merge(target: Path, number: int) -> None:
    models = (tensorkeep.open(tensorkeep.numpy.save(model(each))) for each in (number - 1, number + 1))
    tensorkeep.save_checkpoint(average(*models), target, max_shard_size=SHARD)


def extract(target: Path, number: int) -> None:
    models = (tensorkeep.open(tensorkeep.numpy.save(model(each))) for each in (0, number))
    extract_lora(*models, target, rank=1, overwrite=True)


def divide(target: Path, number: int) -> None:
    tensorkeep.save_checkpoint(model(number), target.parent / "whole", max_shard_size=SHARD, durable=False)
    tensorkeep.reshard_for_ranks(target.parent / "whole", target, 2, plan={"*": "colwise"}, overwrite=True)


def transform(target: Path, number: int) -> None:
    whole = target.parent / "whole"
    tensorkeep.save_checkpoint(model(number), whole, max_shard_size=SHARD)
    (whole / "config.json").write_text('{"number": 0}')
    rewrite(
        whole,
        target,
        lambda tensors: tensors.map(lambda rows: rows + 0, scope="rows"),
        config=lambda config, _, __: config | {"number": number},
        max_shard_size=SHARD,
        overwrite=True,
    )


WAYS: Final[Mapping[str, Callable[[Path, int], None]]] = {
    "planned": write_planned,
    "as they come": write_as_they_come,
    "encrypted": write_encrypted,
    "merge": merge,
    "extract": extract,
    "divide": divide,
    "transform": transform,
}


def number_in(target: Path, way: str) -> int:
    """Return the number of the one checkpoint that is there, whole."""
    key = KEY if way == "encrypted" else None
    verification = tensorkeep.verify(target, key=key)
    assert verification.is_whole, verification.findings
    loaded = tensorkeep.load(target, key=key)
    if way == "extract":
        assert len(loaded) == 2 * len(NAMES)
        factors = iter(loaded.values())
        arrays = [
            right @ left if len(left) == 1 else left @ right for left, right in zip(factors, factors, strict=True)
        ]
        assert json.loads((target / "adapter_config.json").read_text())["r"] == 1
    else:
        assert sorted(loaded) == sorted(NAMES)
        arrays = list(loaded.values())
    (number,) = {round(float(value), 2) for array in arrays for value in np.unique(array.round(2))}
    if way == "transform":
        assert json.loads((target / "config.json").read_text()) == {"number": number}
    return int(number)


def main(folder: Path, way: str, n_kills: int, seed: int) -> None:
    def train(directory: Path, ready: Ready) -> None:
        number = number_in(directory / "model", way)
        ready()
        while True:
            number += 1
            WAYS[way](directory / "model", number)

    report = kill_at_random(
        train,
        lambda directory: number_in(directory / "model", way),
        folder,
        first=lambda directory: WAYS[way](directory / "model", 1),
        times=n_kills,
        seed=seed,
        span_s=0.4 if way == "divide" else 0.1,
    )
    assert report.progress == sorted(report.progress), "a checkpoint went back"
    print(json.dumps({"kills": report.n_killed, "leftovers": report.n_interrupted, "last": report.progress[-1]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
