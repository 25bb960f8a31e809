"""Directories of ranks: what is in them, what they are together, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import (
    DestinationExistsError,
    FormatError,
    IntegrityError,
    LimitError,
    RefusedError,
    SourceMissingError,
    TrustError,
    UnsupportedError,
)
from tensorkeep.server import Server
from tensorkeep.signing import PrivateKey
from tests.support.peak_memory import with_peak

PLAN = {
    "*.up": "colwise",
    "*.down": "rowwise",
    "*.gate_up": "packed_colwise",
    "*.packed_rows": "packed_rowwise",
    "*.experts": "experts",
    "embed": "embedding_rowwise",
}


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    shapes = {
        "layer.up.weight": (8, 6),
        "layer.up.bias": (8,),
        "layer.down.weight": (6, 8),
        "layer.down.bias": (6,),
        "layer.gate_up.weight": (3, 16, 6),
        "layer.packed_rows": (5, 16),
        "layer.experts.weight": (4, 3, 2),
        "embed.weight": (12, 6),
        "norm": (6,),
        "scalar": (),
        "empty": (0, 4),
    }
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    tensorkeep.save_checkpoint(
        arrays(), tmp_path / "source", max_shard_size=500, metadata={"format": "pt", "by": "us"}
    )
    (tmp_path / "source" / "config.json").write_text("{}")
    (tmp_path / "source" / "code.py").write_text("1 / 0")
    return tmp_path / "source"


def rank(out: Path, number: int, n_ranks: int = 2) -> dict[str, np.ndarray[Any, Any]]:
    loaded: dict[str, np.ndarray[Any, Any]] = tensorkeep.load(out / f"rank-{number:05}-of-{n_ranks:05}")
    return loaded


def test_each_rank_has_its_part_and_all_have_everything(source: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "out", arrays()

    done = tensorkeep.reshard_for_ranks(source, out, 2, plan=PLAN, max_shard_size=300)

    first, second = rank(out, 0), rank(out, 1)
    for name, parts in {
        "layer.up.weight": (np.s_[:4], np.s_[4:]),
        "layer.up.bias": (np.s_[:4], np.s_[4:]),
        "layer.down.weight": (np.s_[:, :4], np.s_[:, 4:]),
        "layer.gate_up.weight": (np.s_[:, [*range(4), *range(8, 12)]], np.s_[:, [*range(4, 8), *range(12, 16)]]),
        "layer.packed_rows": (np.s_[:, [*range(4), *range(8, 12)]], np.s_[:, [*range(4, 8), *range(12, 16)]]),
        "layer.experts.weight": (np.s_[:2], np.s_[2:]),
        "embed.weight": (np.s_[:6], np.s_[6:]),
    }.items():
        assert np.array_equal(first[name], whole[name][parts[0]]), name
        assert np.array_equal(second[name], whole[name][parts[1]]), name
    for name in ("layer.down.bias", "norm", "scalar", "empty"):
        assert np.array_equal(first[name], whole[name])
        assert np.array_equal(second[name], whole[name])
    assert set(done.whole) == {"layer.down.bias", "norm", "scalar", "empty"}
    assert done.nbytes == tuple(sum(array.nbytes for array in each.values()) for each in (first, second))
    assert sorted(path.name for path in (out / done.directories[0]).iterdir() if "model" not in path.name) == [
        "config.json"
    ]
    with tensorkeep.open(out) as opened:
        assert isinstance(opened, tensorkeep.RankedCheckpoint)
        assert opened.metadata == {"format": "pt", "by": "us"}
        for name, array in whole.items():
            assert np.array_equal(opened[name].load(), array), name
            assert np.array_equal(opened[name][-1:], array[-1:]) if array.ndim else opened[name][()] == array
    assert tensorkeep.verify(out).is_whole
    assert tensorkeep.diff(source, out).is_equal


def test_they_are_joined_again_with_the_same_digests(source: Path, tmp_path: Path) -> None:
    tensorkeep.reshard_for_ranks(source, tmp_path / "out", 2, plan=PLAN)

    tensorkeep.reshard(tmp_path / "out", tmp_path / "joined")

    assert tensorkeep.verify(tmp_path / "joined").is_whole
    before, after = tensorkeep.open(source), tensorkeep.open(tmp_path / "joined")
    assert {name: lazy.digest for name, lazy in after.items()} == {name: lazy.digest for name, lazy in before.items()}
    assert "tensor_parallel" not in (tmp_path / "joined" / "model.safetensors").read_bytes()[:5000].decode("latin1")
    tensorkeep.convert(tmp_path / "out", tmp_path / "converted")
    assert tensorkeep.diff(source, tmp_path / "converted").is_equal


def test_the_plan_may_be_a_file(source: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text('[plan]\n"*.up" = "colwise"\n"*" = "replicate"\n')

    done = tensorkeep.reshard_for_ranks(source, tmp_path / "out", 4, plan=tmp_path / "plan.toml")

    assert set(done.divided) == {"layer.up.weight", "layer.up.bias"}


@pytest.mark.parametrize("text", ["plan", "[plan]", "[plan]\na = 1", "plan = 3", "\xff"])
def test_other_files_are_no_plans(text: str, source: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(text, "latin1")
    with pytest.raises(FormatError, match="plan"):
        tensorkeep.reshard_for_ranks(source, tmp_path / "out", 2, plan=tmp_path / "plan.toml")


def test_tensors_that_cannot_be_divided_are_named(source: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"2 of the tensors.*`layer\.up\.weight` \[8, 6\]: 8 positions"):
        tensorkeep.reshard_for_ranks(source, tmp_path / "out", 3, plan={"*.up": "colwise"})
    with pytest.raises(RefusedError, match=r"match no tensor.*\*\.other"):
        tensorkeep.reshard_for_ranks(source, tmp_path / "out", 2, plan={"*.up": "colwise", "*.other": "rowwise"})
    with pytest.raises(UnsupportedError, match="no such way"):
        tensorkeep.reshard_for_ranks(source, tmp_path / "out", 2, plan={"*.up": "columns"})
    for number in (0, -1, 2.0, True, 10**9):
        with pytest.raises(UnsupportedError, match="number of ranks"):
            tensorkeep.reshard_for_ranks(source, tmp_path / "out", number, plan=PLAN)  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match=r"`empty`.*there is nothing to divide"):
        tensorkeep.reshard_for_ranks(source, tmp_path / "out", 2, plan={"empty": "colwise"})
    with pytest.raises(TypeError, match="maps patterns to styles"):
        tensorkeep.reshard_for_ranks(source, tmp_path / "out", 2, plan={"*": 2})  # type: ignore[dict-item]
    assert not (tmp_path / "out").exists()


def test_without_a_config_there_is_no_plan(source: Path, tmp_path: Path) -> None:
    (source / "config.json").unlink()
    with pytest.raises(SourceMissingError, match=r"config\.json.*source.*--plan"):
        tensorkeep.reshard_for_ranks(source, tmp_path / "out", 2)


def test_an_index_that_would_be_too_long_is_refused_before_anything_is_read(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorkeep.layout._index.MAX_INDEX_NBYTES", 3_000)
    with pytest.raises(LimitError, match="index too large"):
        tensorkeep.reshard_for_ranks(source, tmp_path / "out", 2, plan=PLAN, progress=lambda *_: pytest.fail("read"))
    assert not list(tmp_path.glob("*out*"))


def test_damage_is_found_on_the_way(source: Path, tmp_path: Path) -> None:
    file = source / tensorkeep.open(source).shard_of("layer.down.weight")
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(IntegrityError, match="not those that were saved"):
        tensorkeep.reshard_for_ranks(source, tmp_path / "out", 2, plan={"*.down": "rowwise"})
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_only_directories_of_ranks_are_replaced(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tensorkeep.reshard_for_ranks(source, out, 4, plan={"*.up": "colwise"})
    with pytest.raises(DestinationExistsError):
        tensorkeep.reshard_for_ranks(source, out, 2, plan=PLAN)
    tensorkeep.reshard_for_ranks(source, out, 2, plan=PLAN, overwrite=True)
    assert len(list(out.iterdir())) == 3
    (out / "notes.txt").write_text("mine")
    with pytest.raises(RefusedError, match=r"notes\.txt"):
        tensorkeep.reshard_for_ranks(source, out, 2, plan=PLAN, overwrite=True)


def test_damage_and_files_of_others_are_found(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tensorkeep.reshard_for_ranks(source, out, 2, plan=PLAN)
    tensorkeep.reshard_for_ranks(source, tmp_path / "other", 2, plan={"*.up": "colwise", "*": "replicate"})
    shutil.copytree(out, tmp_path / "kept")

    def findings() -> str:
        found = str(tensorkeep.verify(out).findings)
        shutil.rmtree(out)
        shutil.copytree(tmp_path / "kept", out)
        return found

    file = out / "rank-00001-of-00002" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert "rank-00001-of-00002/model.safetensors" in findings()
    shutil.rmtree(out / "rank-00001-of-00002")
    assert "missing" in findings()
    shutil.rmtree(out / "rank-00001-of-00002")
    shutil.copytree(tmp_path / "other" / "rank-00001-of-00002", out / "rank-00001-of-00002")
    assert "from another save" in findings()


@pytest.mark.parametrize("number", range(2))
def test_a_rank_alone_is_a_checkpoint(number: int, source: Path, tmp_path: Path) -> None:
    tensorkeep.reshard_for_ranks(source, tmp_path / "out", 2, plan=PLAN)
    own = tmp_path / "out" / f"rank-{number:05}-of-00002"
    assert tensorkeep.verify(own).is_whole
    share = json.loads((own / "model.safetensors.index.json").read_text())["metadata"]["tensor_parallel"]
    assert share["rank"] == number
    [alike] = [each for each in share["parts"] if "layer.down.weight" in each["digests"]]
    assert alike["ranges"] == [[4 * number, 4 * number + 4]]
    tensorkeep.reshard(own, tmp_path / "moved", max_shard_size=100)
    assert tensorkeep.diff(own, tmp_path / "moved").is_equal


def test_memory_is_bounded(tmp_path: Path) -> None:
    big = {"up.weight": np.ones((64, 500_000), np.float32), "down.weight": np.ones((500_000, 64), np.float32)}
    tensorkeep.save(big, tmp_path / "big.safetensors")
    del big
    _, peak = with_peak(
        lambda: tensorkeep.reshard_for_ranks(
            tmp_path / "big.safetensors",
            tmp_path / "out",
            2,
            plan={"up": "colwise", "down": "rowwise"},
            durable=False,
        )
    )
    assert peak < 20 * 2**20


def test_a_signature_covers_all_ranks(source: Path, tmp_path: Path) -> None:
    key = PrivateKey.generate()
    key.write(tmp_path / "key.pem")
    public, out = tmp_path / "key.pub", tmp_path / "out"
    tensorkeep.reshard_for_ranks(source, out, 2, plan=PLAN)
    tensorkeep.sign(out, key)

    assert tensorkeep.open(out, trust=public)["layer.down.weight"][0].shape == (8,)
    tensorkeep.reshard_for_ranks(source, out, 2, plan=PLAN, overwrite=True)
    with pytest.raises(TrustError):
        tensorkeep.open(out, trust=public)


def test_a_url_is_read_once(tmp_path: Path) -> None:
    big = {"up.weight": np.ones((2048, 1024), np.float32), "down.weight": np.ones((1024, 2048), np.float32)}
    (tmp_path / "served").mkdir()
    tensorkeep.save_checkpoint(big, tmp_path / "served" / "big")
    nbytes: list[int] = []
    with Server(tmp_path / "served", port=0, on_served=lambda served: nbytes.append(served.nbytes)) as server:
        tensorkeep.reshard_for_ranks(
            f"{server.url}big/", tmp_path / "out", 4, plan={"up": "colwise", "down": "rowwise"}
        )
    assert tensorkeep.diff(tmp_path / "served" / "big", tmp_path / "out").is_equal
    assert sum(nbytes) < 1.05 * sum(array.nbytes for array in big.values())
