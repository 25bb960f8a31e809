"""Checkpoints that are recognized as one save, in a directory with other people's files.

All elements of a save are its number, so that two saves, which have equal names and shapes, cannot be taken for each
other, nor a mixture for either.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import safetensors.numpy

import tensorkeep
from tensorkeep.errors import SourceMissingError, UnsupportedError

N_TENSORS = 15
TENSOR_NBYTES = 1_600

SINGLE: Mapping[str, Any] = {"max_shard_size": "1GB"}
THREE: Mapping[str, Any] = {"max_shard_size": 5 * TENSOR_NBYTES}
FIVE: Mapping[str, Any] = {"max_shard_size": 3 * TENSOR_NBYTES}


class Scenario(msgspec.Struct, frozen=True):
    """A save over another.

    Attributes:
        old: How the checkpoint that stands there was saved; None where there is none.
        new: How the one that replaces it is saved.
        entry: Name of the file that the new one is opened by.
        n_shards: Files of tensors of the new one.
        variant: Of both.
    """

    old: Mapping[str, Any] | None
    new: Mapping[str, Any]
    n_shards: int
    variant: str | None = None
    has_index: bool = False

    @property
    def files(self) -> set[str]:
        """Names of the files of the new checkpoint."""
        stem = "model" if self.variant is None else f"model.{self.variant}"
        index = "model.safetensors.index" + (f".{self.variant}" if self.variant else "") + ".json"
        if self.n_shards == 1:
            beside = [f"{stem}.safetensors.blocks"] if self.new.get("block_digests") else []
            return {f"{stem}.safetensors", *beside, *([index] if self.has_index else [])}
        return {index, *(f"{stem}-{n:05d}-of-{self.n_shards:05d}.safetensors" for n in range(1, self.n_shards + 1))}


SCENARIOS: Mapping[str, Scenario] = {
    "three shards over the same names": Scenario(THREE, THREE, 3),
    "five shards over three": Scenario(THREE, FIVE, 5),
    "three shards over five": Scenario(FIVE, THREE, 3),
    "a single file over shards": Scenario(THREE, SINGLE, 1),
    "shards over a single file": Scenario(SINGLE, THREE, 3),
    "a single file over another": Scenario(SINGLE, SINGLE, 1),
    "a single file with an index over shards": Scenario(
        {**THREE, "block_digests": True}, {**SINGLE, "sha256": True, "block_digests": True}, 1, has_index=True
    ),
    "a variant over shards of it": Scenario(THREE, THREE, 3, variant="fp16"),
    "a variant in one file over shards of it": Scenario(THREE, SINGLE, 1, variant="fp16"),
    "into a directory without a checkpoint": Scenario(None, THREE, 3),
}


def tensors(number: int) -> dict[str, np.ndarray]:
    """Return the tensors of a save: several dtypes, some of them not in the order of memory."""
    made: dict[str, np.ndarray] = {}
    for n in range(N_TENSORS):
        dtype = (np.float32, np.int32, np.float64)[n % 3]
        array = np.full((16, TENSOR_NBYTES // 16 // np.dtype(dtype).itemsize), number, dtype)
        made[f"layers.{n}.weight"] = array.T if n % 5 == 4 else array
    return made


def save(directory: str | Path, number: int, scenario_side: Mapping[str, Any], variant: str | None = None) -> None:
    """Save the tensors of a number."""
    tensorkeep.save_checkpoint(tensors(number), directory, variant=variant, **scenario_side)


def number_of(loaded: Mapping[str, np.ndarray]) -> int:
    """Return the number of the save that loaded tensors are of; they must be all of it and of no other."""
    number = int(next(iter(loaded.values())).flat[0])
    expected = tensors(number)
    assert loaded.keys() == expected.keys(), sorted(expected.keys() ^ loaded.keys())
    for name, tensor in expected.items():
        np.testing.assert_array_equal(loaded[name], tensor, err_msg=name, strict=True)
    return number


def whole(directory: str | Path, variant: str | None = None) -> int | None:
    """Return the number of the checkpoint in a directory after opening, loading and verifying it; None if none."""
    try:
        opened = tensorkeep.open(directory, variant=variant)
    except (SourceMissingError, UnsupportedError) as error:
        if error.message in {"no checkpoint in the directory", "several checkpoints in the directory"}:
            return None
        raise
    with opened:
        number = number_of(opened.load())
    found = tensorkeep.verify(directory, variant=variant)
    assert found.is_whole, found.findings
    assert found.n_checked == N_TENSORS
    return number


def whole_for_others(directory: str | Path, variant: str | None = None) -> int | None:
    """Read as transformers does: the single file wins, then the index says which shards; None if that fails."""
    stem = "model" if variant is None else f"model.{variant}"
    single = os.path.join(directory, f"{stem}.safetensors")
    index = os.path.join(directory, "model.safetensors.index" + (f".{variant}" if variant else "") + ".json")
    loaded: dict[str, np.ndarray] = {}
    try:
        if os.path.exists(single):
            loaded = safetensors.numpy.load_file(single)
        else:
            with open(index, encoding="utf-8") as file:
                names = set(json.load(file)["weight_map"].values())
            for name in names:
                loaded |= safetensors.numpy.load_file(os.path.join(directory, name))
    except OSError:
        return None
    return number_of(loaded)


def add_bystanders(directory: Path, *, main: bool) -> dict[str, bytes]:
    """Put files of other people and other variants beside a checkpoint, and return their bytes by name.

    Args:
        directory: Where to.
        main: Whether a main checkpoint stands there too.
    """
    for name in ("config.json", "tokenizer.json", "special_tokens_map.json", "README.md", ".gitattributes"):
        (directory / name).write_text(f"this is {name}")
    for name in (
        "model-mybackup-00001-of-00002.safetensors",
        "model2-00001-of-00003.safetensors",
        "pytorch_model.bin",
    ):
        (directory / name).write_bytes(b"mine" * 100)
    save(directory, -1, THREE, "ema")
    save(directory, -2, SINGLE, "int8")
    tensorkeep.save_checkpoint(tensors(-3), directory, base_name="adapter", **THREE)
    if main:
        save(directory, -4, THREE)
    return contents(directory)


def contents(directory: str | Path) -> dict[str, bytes]:
    """Return the bytes of all files of a directory by name."""
    return {path.name: path.read_bytes() if path.is_file() else b"" for path in Path(directory).iterdir()}
