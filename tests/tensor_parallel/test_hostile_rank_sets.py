"""Records of ranks that somebody made up: a value or one of our errors, whatever they say."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.digests import digest_of
from tensorkeep.errors import TensorkeepError
from tensorkeep.layout import RankSet, emit_index, emit_rank_set, parse_index

NAME = "tensorkeep.ranks.json"


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    tensorkeep.save_checkpoint({"w": np.arange(32.0).reshape(8, 4), "n": np.ones(3)}, tmp_path / "source")
    tensorkeep.reshard_for_ranks(tmp_path / "source", tmp_path / "ranks", 2, plan={"w": "colwise"})
    return tmp_path / "ranks"


def refused(ranks: Path) -> None:
    with pytest.raises(TensorkeepError):
        tensorkeep.load(ranks)
    with suppress(TensorkeepError):
        assert not tensorkeep.verify(ranks).is_whole


def test_a_record_cut_off_anywhere_is_refused(ranks: Path) -> None:
    content = (ranks / NAME).read_bytes()
    for length in range(len(content)):
        (ranks / NAME).write_bytes(content[:length])
        refused(ranks)


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["../source"],
        ["rank-00000-of-00002"],
        ["rank-00001-of-00002", "rank-00000-of-00002"],
        ["/etc", "rank-00001-of-00002"],
    ],
    ids=repr,
)
def test_other_directories_are_refused(names: list[str], ranks: Path) -> None:
    (ranks / NAME).write_bytes(emit_rank_set(RankSet(dict.fromkeys(names, "0" * 64))))
    refused(ranks)


@pytest.mark.parametrize(
    "change",
    [
        {"dim": 1},
        {"dim": 2},
        {"dim": -1},
        {"ranges": []},
        {"ranges": [[0, 8]]},
        {"ranges": [[4, 2]]},
        {"ranges": [[-4, 0]]},
        {"ranges": [[0, 2], [1, 3]]},
        {"ranges": [[2, 6]]},
        {"ranges": [[0, 2**63]]},
        {"ranges": 3},
        {"shape": [8]},
        {"shape": [16, 4]},
        {"shape": [2**62, 4]},
        {"digests": {"w": "0" * 64}},
        {"digests": {"w": ""}},
        {"digests": {}},
    ],
    ids=json.dumps,
)
def test_parts_that_do_not_fit_are_refused(change: dict[str, Any], ranks: Path) -> None:
    path = ranks / "rank-00001-of-00002" / "model.safetensors.index.json"
    index = parse_index(path.read_bytes(), str(path))
    index.metadata["tensor_parallel"]["parts"][0] |= change
    path.write_bytes(emit_index(index))
    refused(ranks)


@pytest.mark.parametrize(
    "share", [None, 3, {}, {"rank": 0, "size": 2, "parts": []}, {"rank": 1, "size": 3, "parts": []}]
)
def test_ranks_that_say_something_else_are_refused(share: Any, ranks: Path) -> None:
    path = ranks / "rank-00001-of-00002" / "model.safetensors.index.json"
    index = parse_index(path.read_bytes(), str(path))
    index.metadata["tensor_parallel"] = share
    path.write_bytes(emit_index(index))
    refused(ranks)


def test_a_tensor_that_is_named_twice_is_refused(ranks: Path) -> None:
    path = ranks / "rank-00001-of-00002" / "model.safetensors.index.json"
    index = parse_index(path.read_bytes(), str(path))
    index.metadata["tensor_parallel"]["parts"] *= 2
    path.write_bytes(emit_index(index))
    refused(ranks)


def test_a_part_in_several_ranges_must_be_in_one_piece(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint({"w": np.arange(64.0).reshape(4, 16)}, tmp_path / "source")
    ranks = tmp_path / "ranks"
    tensorkeep.reshard_for_ranks(tmp_path / "source", ranks, 2, plan={"w": "packed_rowwise"})
    own = ranks / "rank-00001-of-00002"
    tensorkeep.reshard(own, own, split_large=True, max_shard_size=64)
    assert np.array_equal(
        tensorkeep.open(own)["w"].load(), np.arange(64.0).reshape(4, 16)[:, [*range(4, 8), *range(12, 16)]]
    )

    assert np.array_equal(tensorkeep.open(ranks)["w"].load(), np.arange(64.0).reshape(4, 16))


def test_copies_that_differ_are_found(ranks: Path, tmp_path: Path) -> None:
    tensorkeep.save_checkpoint({"w": np.arange(32.0).reshape(8, 4), "n": np.zeros(3)}, tmp_path / "source")
    tensorkeep.reshard_for_ranks(tmp_path / "source", tmp_path / "other", 2, plan={"w": "colwise"})
    for file in (tmp_path / "other" / "rank-00001-of-00002").iterdir():
        file.replace(ranks / "rank-00001-of-00002" / file.name)

    found = tensorkeep.verify(ranks)

    assert not found.is_whole
    assert "another save" in str(found.findings)


@pytest.mark.parametrize(
    "change",
    [{"digests": {"w": "0" * 64}}, {"ranges": [[0, 4]]}, {"shape": [9, 4]}],
    ids=json.dumps,
)
def test_verify_finds_indexes_of_all_ranks_that_were_made_up(change: dict[str, Any], ranks: Path) -> None:
    digests = {}
    for directory in sorted(ranks.glob("rank-*")):
        path = directory / "model.safetensors.index.json"
        index = parse_index(path.read_bytes(), str(path))
        index.metadata["tensor_parallel"]["parts"][0] |= change
        path.write_bytes(emit_index(index))
        digests[directory.name] = digest_of(path.read_bytes()).hex()
    (ranks / NAME).write_bytes(emit_rank_set(RankSet(digests)))

    found = tensorkeep.verify(ranks)
    assert not found.is_whole
    assert {finding.tensor for finding in found.findings} == {"w"}
