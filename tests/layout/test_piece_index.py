"""Files of several writers, each with its own pieces of tensors, under one index."""

from __future__ import annotations

import json
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep import Checkpoint
from tensorkeep.cli import main
from tensorkeep.errors import IndexFileError, IntegrityError, SourceMissingError
from tensorkeep.kinds.safetensors import open_file
from tensorkeep.layout import PiecedTensor, ShardRecord, emit_index, index_of_pieces, parse_index, piece_name
from tensorkeep.tensors import Region

INDEX = "model.safetensors.index.json"
TENSORS: dict[str, np.ndarray[Any, Any]] = {
    "tiles": np.arange(7 * 10 * 3, dtype=np.int32).reshape(7, 10, 3),
    "columns": np.arange(60, dtype=np.float16).reshape(6, 10),
    "rows": np.arange(21, dtype=np.float64).reshape(7, 3),
    "whole": np.arange(5, dtype=np.uint8),
    "scalar": np.array(2.5, np.float32),
    "empty": np.zeros((0, 4), np.float32),
}
CUTS: dict[str, tuple[tuple[int, ...], ...]] = {
    "tiles": ((0, 4, 7), (0, 5, 10), (0, 3)),
    "columns": ((0, 6), (0, 3, 6, 9, 10)),
    "rows": ((0, 2, 4, 6, 7), (0, 3)),
    "whole": ((0, 5),),
    "scalar": (),
    "empty": ((0, 0), (0, 4)),
}


def regions_of(name: str) -> list[Region]:
    ranges = product(*(pairwise(cut) for cut in CUTS[name]))
    return [Region(tuple(start for start, _ in each), tuple(stop for _, stop in each)) for each in ranges]


def saved(folder: Path, left_out: str = "") -> Path:
    """Write four files as four ranks would, and their index."""
    files: dict[str, dict[str, Any]] = {}
    pieced = {}
    for name, array in TENSORS.items():
        places = {}
        for rank, region in enumerate(regions_of(name)):
            stored = piece_name(name, region, array.shape)
            if stored != left_out:
                places[region] = f"model-{rank + 1:05}-of-00004.safetensors"
                files.setdefault(places[region], {})[stored] = np.array(array[region.index], order="C")
        pieced[name] = PiecedTensor(tensorkeep.dtypes.BY_NUMPY[array.dtype.name].name, array.shape, places)
    folder.mkdir(exist_ok=True)
    records = {}
    for file, arrays in files.items():
        tensorkeep.save(arrays, folder / file)
        with open_file(folder / file) as opened:
            records[file] = ShardRecord(opened.source.nbytes, opened.header_digest())
    index = index_of_pieces(pieced, records, metadata={"step": 7})
    (folder / INDEX).write_bytes(emit_index(index))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("ranks") / "checkpoint")


def test_pieces_are_named_by_what_they_are(folder: Path) -> None:
    document = json.loads((folder / INDEX).read_bytes())

    assert document["metadata"]["tensorkeep"]["splits"] == {
        "tiles": ["tiles[0:4,0:5]", "tiles[0:4,5:10]", "tiles[4:7,0:5]", "tiles[4:7,5:10]"],
        "columns": [f"columns[0:6,{start}:{stop}]" for start, stop in pairwise((0, 3, 6, 9, 10))],
        "rows": ["rows[0:2]", "rows[2:4]", "rows[4:6]", "rows[6:7]"],
    }
    assert document["weight_map"]["whole"] == "model-00001-of-00004.safetensors"
    assert document["metadata"]["total_size"] == sum(array.nbytes for array in TENSORS.values())
    assert document["metadata"]["step"] == 7


def test_the_index_comes_back(folder: Path) -> None:
    text = (folder / INDEX).read_bytes()

    assert emit_index(parse_index(text, INDEX)) == text


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("verify", [False, True])
def test_it_opens_and_loads_like_any_other(folder: Path, backend: Any, verify: bool) -> None:
    with tensorkeep.open(folder, backend=backend, verify=verify) as checkpoint:
        assert isinstance(checkpoint, Checkpoint)
        assert set(checkpoint) == set(TENSORS)
        for name, expected in TENSORS.items():
            assert np.array_equal(checkpoint[name].load(), expected)
            assert checkpoint[name].shape == expected.shape
        assert np.array_equal(checkpoint["tiles"][2:6, ::-3, 1], TENSORS["tiles"][2:6, ::-3, 1])
        assert np.array_equal(checkpoint.shard("columns", 1, 1, 2), TENSORS["columns"][:, 5:])
    loaded = tensorkeep.load(folder, backend=backend, verify=verify)
    assert all(np.array_equal(loaded[name], expected) for name, expected in TENSORS.items())


def test_it_verifies_and_damage_is_found(tmp_path: Path) -> None:
    folder = saved(tmp_path / "ranks")
    assert tensorkeep.verify(folder).is_whole
    path = folder / "model-00003-of-00004.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)

    verification = tensorkeep.verify(folder)

    assert [finding.kind for finding in verification.findings] == ["data"]
    assert verification.findings[0].shard == path.name
    with tensorkeep.open(folder, verify=True) as checkpoint, pytest.raises(IntegrityError):
        checkpoint.load()


def test_reshard_puts_it_together(folder: Path, tmp_path: Path) -> None:
    tensorkeep.reshard(folder, tmp_path / "one")

    assert tensorkeep.diff(folder, tmp_path / "one").is_equal
    assert tensorkeep.verify(tmp_path / "one").is_whole
    with tensorkeep.open(tmp_path / "one") as file:
        assert all(np.array_equal(file[name].load(), expected) for name, expected in TENSORS.items())


def test_reshard_refuses_damage(tmp_path: Path) -> None:
    folder = saved(tmp_path / "ranks")
    path = folder / "model-00002-of-00004.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)

    with pytest.raises(IntegrityError):
        tensorkeep.reshard(folder, tmp_path / "one")


def test_names_are_changed_in_all_pieces(tmp_path: Path) -> None:
    folder = saved(tmp_path / "ranks")

    tensorkeep.edit(folder, rename={"tiles": "bricks"})

    with tensorkeep.open(folder) as checkpoint:
        assert np.array_equal(checkpoint["bricks"].load(), TENSORS["tiles"])
    assert tensorkeep.verify(folder).is_whole


def test_people_see_the_whole_tensors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(folder)]) == 0
    assert "3 tensors are cut into 12 pieces" in capsys.readouterr().out
    assert main(["verify", str(folder)]) == 0


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = saved(tmp_path / "ranks")
    (folder / "model-00002-of-00004.safetensors").unlink()

    with pytest.raises(SourceMissingError, match="model-00002-of-00004"):
        tensorkeep.open(folder)


def test_a_part_that_no_file_holds_makes_no_index(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"columns.*\[0:6, 6:9\] missing"):
        saved(tmp_path / "ranks", left_out="columns[0:6,6:9]")


@pytest.mark.parametrize(
    "names",
    [
        ["w[0:4,0:5]", "w[0:4,6:10]"],
        ["w[0:4,0:5]", "w[0:4,4:10]"],
        ["w[0:4,5:10]", "w[0:4,0:5]"],
        ["w[1:4,0:5]"],
        ["w[0:4,0:0]", "w[0:4]"],
        ["w[0:4,00:5]"],
        ["w[0:4,]"],
        ["w[]"],
    ],
)
def test_names_that_are_no_whole_tensor_are_refused(names: list[str]) -> None:
    record = ShardRecord(1, "ab" * 32)

    with pytest.raises(IndexFileError, match="`w`"):
        tensorkeep.layout.Index(dict.fromkeys(names, "a"), {}, {"a": record}, {"w": tuple(names)})


def test_a_piece_may_leave_out_what_it_has_all_of() -> None:
    record = ShardRecord(1, "ab" * 32)
    names = ("w[0:4]", "w[4:7,0:5]", "w[4:7,5:10]")

    index = tensorkeep.layout.Index(dict.fromkeys(names, "a"), {}, {"a": record}, {"w": names})

    assert parse_index(emit_index(index), INDEX) == index
