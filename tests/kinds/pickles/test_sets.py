"""Several files of `torch.save` as one checkpoint: shards with an index, and the directories of trainers."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

import tensorkeep
from tensorkeep.errors import IntegrityError, SourceMissingError, UnsafeError, UnsupportedError
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.pickles import PickleFile, PickleSet, find_pickled, open_pickled

WEIGHTS = {f"layers.{place}.weight": torch.full((3, 4), float(place)) for place in range(4)}
NAMES = list(WEIGHTS)


def save_set(folder: Path, base: str = "pytorch_model", variant: str = "") -> Path:
    """Save a set as transformers did, two tensors in each of two shards."""
    stem = f"{base}.{variant}" if variant else base
    files = [f"{stem}-0000{number}-of-00002.bin" for number in (1, 2)]
    weight_map = {name: files[place // 2] for place, name in enumerate(NAMES)}
    for file in files:
        torch.save({name: WEIGHTS[name] for name in NAMES if weight_map[name] == file}, folder / file)
    index = folder / f"{base}.bin.index.{f'{variant}.' if variant else ''}json"
    index.write_text(json.dumps({"metadata": {"total_size": 192}, "weight_map": weight_map}))
    return index


def opened(path: Path, *, variant: str | None = None, **options: Any) -> PickleFile | PickleSet:
    location = find_pickled(str(path), variant)
    assert location is not None
    return open_pickled(location, OpenOptions(**options))


def assert_weights(found: PickleFile | PickleSet) -> None:
    assert list(found) == NAMES
    assert all(torch.equal(tensor, WEIGHTS[name]) for name, tensor in found.load().items())


@pytest.mark.parametrize(("base", "variant"), [("pytorch_model", ""), ("pytorch_model", "fp16"), ("other", "")])
def test_shards_with_an_index(tmp_path: Path, base: str, variant: str) -> None:
    index = save_set(tmp_path, base, variant)

    for path, options in ((tmp_path, {"variant": variant or None}), (index, {})):
        with opened(path, framework="torch", **options) as found:
            assert isinstance(found, PickleSet)
            assert found.path == str(index)
            assert len(found.files) == 2
            assert_weights(found)
            assert found.load_tree().keys() == WEIGHTS.keys()
            assert found.tree[NAMES[3]].shape == (3, 4)
            assert found[NAMES[1]].name == NAMES[1]
            assert "nothing" not in found
            assert repr(found) == f"PickleSet({str(index)!r}, 4 tensors in 2 files, 192 bytes)"


def test_a_shard_that_is_missing(tmp_path: Path) -> None:
    index = save_set(tmp_path)
    (tmp_path / "pytorch_model-00002-of-00002.bin").unlink()

    with pytest.raises(SourceMissingError, match=r"a shard is missing .*pytorch_model-00002-of-00002\.bin"):
        opened(index)


def test_an_index_and_shards_that_do_not_agree(tmp_path: Path) -> None:
    index = save_set(tmp_path)
    document = json.loads(index.read_text())
    first, second = sorted(set(document["weight_map"].values()))
    torch.save({name: WEIGHTS[name] for name in NAMES[1:]}, tmp_path / second)
    document["weight_map"]["nowhere"] = first
    document["weight_map"][NAMES[0]] = second
    index.write_text(json.dumps(document))

    with pytest.raises(IntegrityError) as error:
        opened(index)

    assert error.value.found == (
        f"`nowhere` is in no shard; `{NAMES[1]}` is in {first} and {second};"
        f" `{NAMES[0]}` is in {first}, not in {second}"
    )


def test_shards_without_an_index_are_no_checkpoint(tmp_path: Path) -> None:
    save_set(tmp_path).unlink()

    with pytest.raises(SourceMissingError, match="the index of the shards is missing"):
        opened(tmp_path)


def test_a_single_file_beside_an_index_is_refused(tmp_path: Path) -> None:
    save_set(tmp_path)
    torch.save(WEIGHTS, tmp_path / "pytorch_model.bin")

    with pytest.raises(IntegrityError, match="it is unclear which one to open"):
        opened(tmp_path)


def test_several_indexes_are_refused(tmp_path: Path) -> None:
    save_set(tmp_path, "one")
    save_set(tmp_path, "two")

    with pytest.raises(UnsupportedError, match="several checkpoints"):
        opened(tmp_path)


def test_the_index_cannot_lead_outside(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    torch.save(WEIGHTS, tmp_path / "secret.bin")
    index = inner / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(NAMES, "../secret.bin")}))

    with pytest.raises(ValueError, match="outside its directory"):
        opened(index)


def test_what_trainers_save_beside_weights_is_no_part_of_them(tmp_path: Path) -> None:
    torch.save(WEIGHTS, tmp_path / "pytorch_model.bin")
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state_0.pth"):
        torch.save({"step": torch.tensor(1)}, tmp_path / name)

    found = opened(tmp_path, framework="torch")
    assert isinstance(found, PickleFile)
    assert_weights(found)

    (tmp_path / "pytorch_model.bin").rename(tmp_path / "anything.ckpt")
    assert_weights(opened(tmp_path, framework="torch"))

    (tmp_path / "anything.ckpt").unlink()
    assert "optimizer.step" in opened(tmp_path)


def test_safetensors_files_are_preferred(tmp_path: Path) -> None:
    torch.save(WEIGHTS, tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").write_bytes(b"whatever")

    assert find_pickled(str(tmp_path)) is None


@pytest.mark.parametrize("content", [b"", b"text", b"GGUF" + bytes(600)])
def test_what_only_has_the_name_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(content)

    assert find_pickled(str(tmp_path)) is None
    assert find_pickled(str(tmp_path / "pytorch_model.bin")) is None
    assert find_pickled(str(tmp_path / "missing.bin")) is None


def test_a_directory_of_megatron(tmp_path: Path) -> None:
    for rank in (0, 1):
        folder = tmp_path / "iter_0000100" / f"mp_rank_0{rank}"
        folder.mkdir(parents=True)
        content = {"model": {"w": torch.full((2,), rank)}, "iteration": 100, "args": Namespace(rank=rank)}
        torch.save(content, folder / "model_optim_rng.pt")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("100")

    with opened(tmp_path, framework="torch") as found:
        assert list(found) == [f"iter_0000100.mp_rank_0{rank}.model_optim_rng.model.w" for rank in (0, 1)]
        assert torch.equal(found[list(found)[1]].load(), torch.full((2,), 1))
        assert found.load_tree()["iter_0000100/mp_rank_01/model_optim_rng.pt"]["args"] == {"rank": 1}


def test_a_directory_of_deepspeed(tmp_path: Path) -> None:
    for rank in (0, 1):
        torch.save({"module": {"w": torch.ones(2)}}, tmp_path / f"mp_rank_0{rank}_model_states.pt")
    torch.save({"state": torch.zeros(3)}, tmp_path / "zero_pp_rank_0_mp_rank_00_optim_states.pt")

    found = opened(tmp_path)

    assert list(found) == [
        "mp_rank_00_model_states.module.w",
        "mp_rank_01_model_states.module.w",
        "zero_pp_rank_0_mp_rank_00_optim_states.state",
    ]


def test_files_that_differ_by_extension_only_keep_it(tmp_path: Path) -> None:
    for name in ("a.pt", "a.ckpt", "b.pth.tar"):
        torch.save({"w": torch.ones(2)}, tmp_path / name)

    assert list(opened(tmp_path)) == ["a.ckpt.w", "a.pt.w", "b.w"]


class Strange:
    def __init__(self) -> None:
        self.value = 1


def test_objects_are_named_with_their_file(tmp_path: Path) -> None:
    for name in ("a.pt", "b.pt"):
        torch.save({"w": torch.ones(2), "extra": Strange()}, tmp_path / name)

    with opened(tmp_path) as found:
        assert {name: unknown.name for name, unknown in found.unknowns.items()} == {
            "a.extra": "Strange",
            "b.extra": "Strange",
        }
    with pytest.raises(UnsafeError):
        opened(tmp_path, strict=True)


def save_shards(folder: Path, shards: dict[str, Any], names: dict[str, str]) -> Path:
    for file, content in shards.items():
        torch.save(content, folder / file)
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return index


def test_nested_dicts_of_shards_are_joined(tmp_path: Path) -> None:
    first = OrderedDict(model={"a": torch.ones(2), "cfg": {"n": 1}}, epoch=3)
    first._metadata = {"": {"version": 1}, "a": {"version": 2}}
    second = OrderedDict(model={"b": torch.zeros(2), "cfg": {"m": 2}}, epoch=3)
    second._metadata = {"": {"version": 1}, "b": {"version": 3}}
    index = save_shards(tmp_path, {"1.bin": first, "2.bin": second}, {"model.a": "1.bin", "model.b": "2.bin"})

    with opened(index, framework="torch") as found:
        for tree in (found.tree, found.load_tree()):
            assert list(tree) == ["model", "epoch"]
            assert list(tree["model"]) == ["a", "cfg", "b"]
            assert tree["model"]["cfg"] == {"n": 1, "m": 2}
            assert tree._metadata == {"": {"version": 1}, "a": {"version": 2}, "b": {"version": 3}}
        assert list(found.files["1.bin"].tree["model"]) == ["a", "cfg"]


def test_shards_that_contradict_each_other_are_not_joined(tmp_path: Path) -> None:
    shards = {"1.bin": {"a": torch.ones(2), "epoch": 3}, "2.bin": {"b": torch.ones(2), "epoch": 4}}
    index = save_shards(tmp_path, shards, {"a": "1.bin", "b": "2.bin"})

    with opened(index) as found, pytest.raises(IntegrityError, match=r"`epoch` is not the same .*2\.bin"):
        found.load_tree()


def test_two_tensors_of_one_name_are_both_there(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    torch.save({"b": {"w": torch.ones(2)}, "x": Strange()}, tmp_path / "a.pt")
    torch.save({"w": torch.zeros(2)}, tmp_path / "a" / "b.pt")

    with opened(tmp_path, framework="torch") as found:
        assert {name: tensor.tolist() for name, tensor in found.load().items()} == {
            "a.b.w": [1, 1],
            "a.b.w#2": [0, 0],
        }
    converted = tensorkeep.convert(tmp_path, tmp_path / "safe", drop_unknown=True)
    assert converted.n_tensors == 2
    assert tensorkeep.open(tmp_path / "safe")["a.b.w#2"].load().tolist() == [0, 0]


def test_extensions_of_extensions(tmp_path: Path) -> None:
    for place, name in enumerate(("a.bin", "a.bin.pt", "a.pt")):
        torch.save({"w": torch.full((1,), float(place))}, tmp_path / name)

    values = {name: lazy.load().item() for name, lazy in opened(tmp_path, framework="torch").items()}

    assert sorted(values.values()) == [0, 1, 2]
