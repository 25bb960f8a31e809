"""What is at a destination is replaced only if the caller says so, or if it is a source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.errors import DestinationExistsError

A, B = {"a": np.ones(300, np.float32)}, {"b": np.zeros(300, np.float32)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    torch.save({"a": torch.ones(300)}, tmp_path / "a.pt")
    tensorkeep.save_checkpoint(A, tmp_path / "A")
    return tmp_path / "A"


WRITERS: list[Any] = [
    tensorkeep.reshard,
    lambda source, place, **options: tensorkeep.join([source], place, **options),
    tensorkeep.convert,
    lambda source, place, **options: tensorkeep.convert(source.parent / "a.pt", place, **options),
]


def saved(place: Any) -> Any:
    tensorkeep.save_checkpoint(B | {"c": B["b"] + 1}, place, max_shard_size=1300)
    return place


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("where", ["disk", "store"])
def test_another_checkpoint_stays(source: Path, tmp_path: Path, write: Any, where: str) -> None:
    place = saved(tmp_path / "B" if where == "disk" else f"memory://{tmp_path.name}-{WRITERS.index(write)}/B")

    with pytest.raises(FileExistsError, match=r"model\.safetensors\.index\.json.*overwrite=True") as caught:
        write(source, place)

    assert isinstance(caught.value, DestinationExistsError)
    assert list(tensorkeep.open(place)) == ["b", "c"]
    write(source, place, overwrite=True)
    assert list(tensorkeep.open(place)) == ["a"]


def test_files_of_others_stay(source: Path, tmp_path: Path) -> None:
    saved(tmp_path / "B")
    (tmp_path / "B" / "config.json").write_text("{}")

    tensorkeep.reshard(source, tmp_path / "B", overwrite=True)

    assert (tmp_path / "B" / "config.json").exists()


def test_a_single_file_stays(source: Path, tmp_path: Path) -> None:
    tensorkeep.save(B, tmp_path / "b.safetensors")

    with pytest.raises(DestinationExistsError, match=r"found b\.safetensors"):
        tensorkeep.convert(tmp_path / "a.pt", tmp_path / "b.safetensors")

    assert list(tensorkeep.open(tmp_path / "b.safetensors")) == ["b"]


def test_shards_without_an_index_stay(source: Path, tmp_path: Path) -> None:
    (tmp_path / "B").mkdir()
    tensorkeep.save(B, tmp_path / "B" / "model-00001-of-00002.safetensors")
    tensorkeep.save_checkpoint(A | {"z": A["a"] + 1}, source)

    with pytest.raises(DestinationExistsError, match="model-00001-of-00002"):
        tensorkeep.reshard(source, tmp_path / "B", max_shard_size=1300)

    assert list(tensorkeep.open(tmp_path / "B" / "model-00001-of-00002.safetensors")) == ["b"]


@pytest.mark.parametrize("form", ["directory", "index", "file", "link"])
def test_a_source_is_replaced(tmp_path: Path, form: str) -> None:
    place = tmp_path / "run"
    tensorkeep.save_checkpoint(A | B, place, **({"max_shard_size": 1300} if form == "index" else {}))
    (tmp_path / "link").symlink_to("run")
    given = {
        "directory": place,
        "index": place / "model.safetensors.index.json",
        "file": place / "model.safetensors",
        "link": tmp_path / "link",
    }[form]

    tensorkeep.reshard(given, place, rename={"a": "x"}, max_shard_size=1300)
    tensorkeep.join([place], place)
    tensorkeep.convert(place, place, cast="bf16")

    assert {name: lazy.dtype for name, lazy in tensorkeep.open(place).items()} == {"x": "BF16", "b": "BF16"}


@pytest.mark.parametrize("write", [tensorkeep.reshard, tensorkeep.convert])
@pytest.mark.parametrize("part", [{"select": "a"}, {"drop": "b"}], ids=str)
def test_a_source_is_not_replaced_by_a_part_of_it(tmp_path: Path, write: Any, part: dict[str, str]) -> None:
    tensorkeep.save_checkpoint(A | B, tmp_path / "run", max_shard_size=1300)

    with pytest.raises(DestinationExistsError):
        write(tmp_path / "run", tmp_path / "run", **part)

    assert list(tensorkeep.open(tmp_path / "run")) == ["a", "b"]
    write(tmp_path / "run", tmp_path / "run", **part, overwrite=True)
    assert list(tensorkeep.open(tmp_path / "run")) == ["a"]


def test_a_shard_of_a_source_is_not_replaced(tmp_path: Path) -> None:
    """Neither through a link to it, nor by its name, where the index stays."""
    tensorkeep.save(A, tmp_path / "one.safetensors")
    (tmp_path / "run").mkdir()
    for name, tensors in (("a", A), ("b", B)):
        tensorkeep.numpy.save_file(tensors, tmp_path / "run" / f"{name}.safetensors")
    index = {"metadata": {}, "weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}
    (tmp_path / "run" / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "link.safetensors").symlink_to("run/a.safetensors")
    tensorkeep.patches.make(tmp_path / "run", tmp_path / "one.safetensors", tmp_path / "patch.safetensors")

    for place in (tmp_path / "link.safetensors", tmp_path / "run" / "a.safetensors"):
        with pytest.raises(DestinationExistsError):
            tensorkeep.convert(tmp_path / "run", place)
        with pytest.raises(DestinationExistsError):
            tensorkeep.patches.apply(tmp_path / "run", tmp_path / "patch.safetensors", output=place)

    assert sorted(tensorkeep.load(tmp_path / "run")) == ["a", "b"]


def test_one_that_appears_meanwhile_stays(source: Path, tmp_path: Path) -> None:
    def save_another(done: int, total: int) -> None:
        if not (tmp_path / "B" / "model.safetensors").exists():
            tensorkeep.save(B, tmp_path / "B" / "model.safetensors")

    (tmp_path / "B").mkdir()
    with pytest.raises(DestinationExistsError):
        tensorkeep.reshard(source, tmp_path / "B", progress=save_another)

    assert list(tensorkeep.open(tmp_path / "B")) == ["b"]
