"""Names, metadata and sums of finished checkpoints, changed with as little written as can be."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import torch
import transformers

import tensorkeep
from tensorkeep.errors import (
    HeaderError,
    IntegrityError,
    RefusedError,
    SourceMissingError,
    TensorkeepError,
    TensorNotFoundError,
    UnsupportedError,
)
from tests.support import SUPPORT
from tests.support.checkpoint.interrupted_editor import CASES
from tests.support.checkpoint.rewritten import INDEX, Arrays, assert_same, assert_whole, read_by_others

EDITOR = SUPPORT / "checkpoint" / "interrupted_editor.py"
FILE = "model.safetensors"
SHARDS = [f"model-{number:05d}-of-00003.safetensors" for number in range(1, 4)]


def tensors_of(seed: int = 1, n: int = 6) -> Arrays:
    random = np.random.default_rng(seed)
    return {f"layer.{place}.weight": random.random((10, 25), np.float32) for place in range(n)}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def inodes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.glob("*.safetensors")}


def data_of(path: Path) -> bytes:
    content = path.read_bytes()
    return content[8 + int.from_bytes(content[:8], "little") :]


def metadata_by_others(path: Path) -> dict[str, str]:
    with safetensors.safe_open(path, "numpy") as file:
        return {key: text for key, text in file.metadata().items() if key != "tensorkeep"}


def digests_of(path: Path) -> list[bytes | None]:
    with tensorkeep.open(path) as tensors:
        return [lazy.digest for lazy in tensors.values()]


@pytest.mark.parametrize("entry", ["", FILE])
def test_metadata_of_a_file_that_has_room_is_changed_in_place(tmp_path: Path, entry: str) -> None:
    tensorkeep.save_checkpoint(tensors_of(), tmp_path, metadata={"step": "7", "note": "x" * 50})
    before, digests = inodes(tmp_path), digests_of(tmp_path)
    data_start = len((tmp_path / FILE).read_bytes()) - len(data_of(tmp_path / FILE))

    tensorkeep.edit(tmp_path / entry, set_metadata={"step": "8", "by": "me"}, unset=["note", "never there"])

    assert inodes(tmp_path) == before
    assert tensorkeep.open(tmp_path / FILE).metadata == {"by": "me", "format": "pt", "step": "8"}
    assert_same(read_by_others(tmp_path), tensors_of())
    assert_whole(tmp_path)
    assert digests_of(tmp_path) == digests
    assert len((tmp_path / FILE).read_bytes()) - len(data_of(tmp_path / FILE)) == data_start
    assert os.listdir(tmp_path) == [FILE]


def test_a_file_without_room_is_written_anew_and_has_room_then(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(), tmp_path)
    before, digests = inodes(tmp_path), digests_of(tmp_path)
    tensorkeep.edit(tmp_path, set_metadata={"licence": "x" * 500})
    anew = inodes(tmp_path)
    assert anew != before

    tensorkeep.edit(tmp_path, set_metadata={"licence": "y" * 4000})

    assert inodes(tmp_path) == anew
    assert metadata_by_others(tmp_path / FILE)["licence"] == "y" * 4000
    assert_same(read_by_others(tmp_path), tensors_of())
    assert digests_of(tmp_path) == digests
    assert_whole(tmp_path)


@pytest.mark.parametrize("has_room", [True, False])
def test_all_shards_and_the_index_change_together(tmp_path: Path, has_room: bool) -> None:
    text = {"step": "7", "note": "x" * 300} if has_room else {}
    tensorkeep.save_checkpoint(tensors_of(), tmp_path, max_shard_size="2KB", metadata=text)
    before, digests = inodes(tmp_path), digests_of(tmp_path)
    data = {name: data_of(tmp_path / name) for name in SHARDS}

    tensorkeep.edit(
        tmp_path,
        set_metadata={"step": "8"},
        unset="note",
        rename=lambda name: name.replace("layer.", "decoder.layers."),
    )

    assert (inodes(tmp_path) == before) is has_room
    expected = {name.replace("layer.", "decoder.layers."): array for name, array in tensors_of().items()}
    assert_same(read_by_others(tmp_path), expected)
    assert [metadata_by_others(tmp_path / name) for name in SHARDS] == [{"format": "pt", "step": "8"}] * 3
    assert {name: data_of(tmp_path / name) for name in SHARDS} == data
    assert digests_of(tmp_path) == digests
    assert_whole(tmp_path)
    assert json.loads((tmp_path / INDEX).read_text())["metadata"]["total_size"] == 6000
    assert sorted(os.listdir(tmp_path)) == [*SHARDS, INDEX]


def test_only_the_shards_that_change_are_touched(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(), tmp_path, max_shard_size="2KB", sha256=True)
    before = contents(tmp_path)

    tensorkeep.edit(tmp_path / INDEX, rename={"layer.2.weight": "layer.5.weight.old"})

    after = contents(tmp_path)
    assert [name for name in before if after[name] != before[name]] in ([SHARDS[1], INDEX], [INDEX, SHARDS[1]])
    records = json.loads(after[INDEX])["metadata"]["tensorkeep"]["shards"]
    assert [name for name, record in records.items() if "sha256" not in record] == [SHARDS[1]]
    assert_whole(tmp_path)
    assert tensorkeep.verify(tmp_path).n_sha256 == 2


def test_names_can_change_places(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(), tmp_path, max_shard_size="2KB")
    expected = tensors_of()
    first, last = expected["layer.0.weight"], expected["layer.5.weight"]

    tensorkeep.edit(tmp_path, rename={"layer.0.weight": "layer.5.weight", "layer.5.weight": "layer.0.weight"})

    assert_same(tensorkeep.load(tmp_path), expected | {"layer.0.weight": last, "layer.5.weight": first})
    assert_whole(tmp_path)


def test_a_tensor_in_pieces_is_renamed_as_one(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(n=2), tmp_path, max_shard_size=600, split_large=True)

    tensorkeep.edit(tmp_path, rename={"layer.1.weight": "b"})

    assert {"b[0:6]", "b[6:10]", "layer.0.weight[0:6]"} <= read_by_others(tmp_path).keys()
    expected = tensors_of(n=2)
    assert_same(
        tensorkeep.load(tmp_path), {"layer.0.weight": expected["layer.0.weight"], "b": expected["layer.1.weight"]}
    )
    assert_whole(tmp_path)
    with pytest.raises(RefusedError, match=r"`c\[0:6\]`"):
        tensorkeep.edit(tmp_path, rename={"b": "c", "layer.0.weight": "c[0:6]"})


def test_what_metadata_say_of_single_tensors_is_renamed_with_them(tmp_path: Path) -> None:
    tensors = {"a": np.zeros(1), "days": np.zeros(1), "s.values": np.zeros(1), "s.indices": np.zeros(1)}
    said = {"numpy.types": '{"days":"<M8[D]"}', "onnx.sparse": '{"s":[4,5]}', "own": "s"}
    tensorkeep.save_checkpoint(tensors, tmp_path, metadata=said, max_shard_size=16)

    tensorkeep.edit(tmp_path, rename={"days": "d", "s.values": "t.values", "s.indices": "t.indices"})
    with tensorkeep.open(tmp_path) as opened:
        assert opened.metadata["numpy.types"] == '{"d":"<M8[D]"}'
        assert opened.metadata["onnx.sparse"] == '{"t":[4,5]}'
        assert opened.metadata["own"] == "s"
    assert_whole(tmp_path)


@pytest.mark.parametrize("sharded", [False, True])
def test_a_checkpoint_of_others_gains_no_digests(tmp_path: Path, sharded: bool) -> None:
    if sharded:
        module = torch.nn.Sequential(*(torch.nn.Linear(10, 25) for _ in range(6)))
        state = {name: tensor.detach() for name, tensor in module.state_dict().items()}
        from huggingface_hub import save_torch_state_dict

        save_torch_state_dict(state, tmp_path, max_shard_size="2KB")
    else:
        state = {name: torch.from_numpy(array) for name, array in tensors_of().items()}
        safetensors.numpy.save_file(tensors_of(), tmp_path / FILE)
    first = next(iter(state))

    tensorkeep.edit(tmp_path, set_metadata={"by": "me"}, rename={first: "renamed"})

    read = read_by_others(tmp_path)
    assert read.keys() == {"renamed" if name == first else name for name in state}
    np.testing.assert_array_equal(read["renamed"], state[first].numpy())
    found = tensorkeep.verify(tmp_path)
    assert not found.is_damaged
    assert found.n_unprotected == found.n_tensors == len(state)
    for path in tmp_path.glob("*.safetensors"):
        assert metadata_by_others(path) == {"by": "me", "format": "pt"}
        assert b'"tensorkeep"' not in path.read_bytes()


def test_a_file_whose_data_starts_anywhere_is_edited_in_place(tmp_path: Path) -> None:
    header = b'{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}' + b" " * 60
    (tmp_path / FILE).write_bytes(len(header).to_bytes(8, "little") + header + b"abc")
    assert (8 + len(header)) % 8
    before = inodes(tmp_path)

    tensorkeep.edit(tmp_path / FILE, set_metadata={"a": "b"})

    assert inodes(tmp_path) == before
    assert data_of(tmp_path / FILE) == b"abc"
    assert metadata_by_others(tmp_path / FILE) == {"a": "b", "format": "pt"}


def test_transformers_reads_what_was_edited(tmp_path: Path) -> None:
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=50
    )
    model = transformers.BertModel(config)
    model.save_pretrained(tmp_path)
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    tensorkeep.edit(tmp_path, set_metadata={"by": "me"}, rename={"embeddings.LayerNorm.weight": "x"})
    tensorkeep.edit(tmp_path, rename={"x": "embeddings.LayerNorm.weight"})

    loaded = transformers.BertModel.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in expected.items())


def test_what_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(), tmp_path, max_shard_size="2KB", metadata={"step": "7"})
    before = [(path.name, path.stat().st_ino, path.stat().st_mtime_ns) for path in tmp_path.iterdir()]

    tensorkeep.edit(tmp_path)
    tensorkeep.edit(tmp_path, set_metadata={"step": "7"}, unset=["x"], rename=lambda name: name)

    assert [(path.name, path.stat().st_ino, path.stat().st_mtime_ns) for path in tmp_path.iterdir()] == before


def test_impossible_edits_say_so_and_change_nothing(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(), tmp_path, max_shard_size="2KB")
    before = contents(tmp_path)
    edits: list[tuple[type[Exception], dict[str, object]]] = [
        (RefusedError, {"rename": {"layer.0.weight": "layer.5.weight"}}),
        (RefusedError, {"rename": lambda name: "one"}),
        (TensorNotFoundError, {"rename": {"layer.9.weight": "x"}}),
        (HeaderError, {"rename": {"layer.0.weight": "__metadata__"}}),
        (HeaderError, {"rename": {"layer.5.weight": "\ud800"}}),
        (TypeError, {"rename": {"layer.5.weight": 5}}),
        (TypeError, {"set_metadata": {"step": 7}}),
        (TypeError, {"set_metadata": "text"}),
        (RefusedError, {"set_metadata": {"a": "b"}, "unset": "a"}),
        (RefusedError, {"set_metadata": {"tensorkeep": "x"}}),
        (RefusedError, {"unset": "tensorkeep"}),
    ]

    for error, arguments in edits:
        with pytest.raises(error):
            tensorkeep.edit(tmp_path, **arguments)

    assert contents(tmp_path) == before


def test_damage_is_not_edited_over(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(), tmp_path, max_shard_size="2KB")
    path = tmp_path / SHARDS[0]
    path.write_bytes(path.read_bytes().replace(b'"layer.0.weight"', b'"layer.7.weight"'))
    before = contents(tmp_path)

    with pytest.raises(IntegrityError):
        tensorkeep.edit(tmp_path, set_metadata={"a": "b"})
    with pytest.raises(IntegrityError):
        tensorkeep.add_sha256(tmp_path)

    assert contents(tmp_path) == before


def test_damage_of_a_tensor_is_still_found_after_an_edit(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(), tmp_path)
    content = bytearray((tmp_path / FILE).read_bytes())
    content[-1] ^= 1
    (tmp_path / FILE).write_bytes(content)

    tensorkeep.edit(tmp_path, set_metadata={"licence": "x" * 500})

    assert [finding.tensor for finding in tensorkeep.verify(tmp_path).findings] == ["layer.5.weight"]


def test_a_shard_is_not_edited_without_its_set(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(), tmp_path, max_shard_size="2KB")

    for change in (tensorkeep.edit, tensorkeep.add_sha256):
        with pytest.raises(UnsupportedError, match=f"one of the shards of {INDEX}"):
            change(tmp_path / SHARDS[0])
        with pytest.raises(SourceMissingError):
            change(tmp_path / "missing.safetensors")
        with pytest.raises(SourceMissingError):
            change(tmp_path / "missing" / FILE)
    assert sorted(os.listdir(tmp_path)) == [*SHARDS, INDEX]


@pytest.mark.parametrize("name", ["model.safetensors", "weights.bin", "model-00001-of-00002.safetensors"])
def test_a_file_of_any_name_is_edited_by_its_path(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensorkeep.save(tensors_of(), tmp_path / name, metadata={"note": "x" * 99})
    monkeypatch.chdir(tmp_path)

    tensorkeep.edit(name, set_metadata={"note": "short"}, rename={"layer.0.weight": "w"})

    assert tensorkeep.open(name).metadata == {"format": "pt", "note": "short"}
    np.testing.assert_array_equal(tensorkeep.load(name)["w"], tensors_of()["layer.0.weight"])
    assert_whole(tmp_path / name)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_what_a_link_leads_to_is_never_written(tmp_path: Path, link: object) -> None:
    blob, folder = tmp_path / "blob", tmp_path / "snapshot"
    folder.mkdir()
    tensorkeep.save(tensors_of(), blob, metadata={"note": "x" * 99})
    before = blob.read_bytes()
    link(blob, folder / FILE)

    tensorkeep.edit(folder, set_metadata={"note": "short"})

    assert blob.read_bytes() == before
    assert tensorkeep.open(folder).metadata["note"] == "short"
    assert_same(read_by_others(folder), tensors_of())


def test_the_mode_of_a_file_stays(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(), tmp_path)
    (tmp_path / FILE).chmod(0o640)

    tensorkeep.edit(tmp_path, set_metadata={"licence": "x" * 500})
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o640

    tensorkeep.edit(tmp_path, set_metadata={"licence": "y"})
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o640


def sums_of(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.safetensors")}


def test_sums_of_shards_go_into_the_index(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(), tmp_path, max_shard_size="2KB")
    before = contents(tmp_path)
    steps: list[tuple[int, int]] = []

    added = tensorkeep.add_sha256(tmp_path, progress=lambda *done: steps.append(done))

    assert added == sums_of(tmp_path)
    assert steps[-1] == (sum(len(before[name]) for name in SHARDS),) * 2
    records = json.loads((tmp_path / INDEX).read_text())["metadata"]["tensorkeep"]["shards"]
    assert {name: record["sha256"] for name, record in records.items()} == added
    assert {name: content for name, content in contents(tmp_path).items() if name != INDEX} == {
        name: content for name, content in before.items() if name != INDEX
    }
    assert_whole(tmp_path)
    assert tensorkeep.verify(tmp_path).n_sha256 == 3


def test_sums_that_are_there_are_kept(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(), tmp_path, max_shard_size="2KB", sha256=True)
    before = contents(tmp_path)
    steps: list[tuple[int, int]] = []

    assert tensorkeep.add_sha256(tmp_path, progress=lambda *done: steps.append(done)) == sums_of(tmp_path)

    assert steps == []
    assert contents(tmp_path) == before


def test_a_single_file_gets_an_index_for_its_sum(tmp_path: Path) -> None:
    tensorkeep.save(tensors_of(), tmp_path / "adapter.safetensors")

    added = tensorkeep.add_sha256(tmp_path / "adapter.safetensors")

    assert added == sums_of(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["adapter.safetensors", "adapter.safetensors.index.json"]
    assert tensorkeep.verify(tmp_path).n_sha256 == 1
    assert_same(tensorkeep.load(tmp_path), tensors_of())
    assert tensorkeep.add_sha256(tmp_path / "adapter.safetensors") == added

    tensorkeep.edit(tmp_path / "adapter.safetensors", set_metadata={"by": "me"})

    assert_whole(tmp_path)
    assert tensorkeep.verify(tmp_path).n_sha256 == 0
    assert tensorkeep.add_sha256(tmp_path) == sums_of(tmp_path) != added


def test_a_file_that_gives_no_name_to_an_index_gets_none(tmp_path: Path) -> None:
    tensorkeep.save(tensors_of(), tmp_path / "weights.bin")

    with pytest.raises(UnsupportedError, match="the file name allows no index"):
        tensorkeep.add_sha256(tmp_path / "weights.bin")

    assert os.listdir(tmp_path) == ["weights.bin"]


def test_an_index_of_others_gets_sums(tmp_path: Path) -> None:
    from huggingface_hub import save_torch_state_dict

    state = {name: torch.from_numpy(array) for name, array in tensors_of().items()}
    save_torch_state_dict(state, tmp_path, max_shard_size="2KB", metadata={"any": "thing"})
    before = json.loads((tmp_path / INDEX).read_text())

    assert tensorkeep.add_sha256(tmp_path) == sums_of(tmp_path)

    after = json.loads((tmp_path / INDEX).read_text())
    assert after["weight_map"] == before["weight_map"]
    assert {key: value for key, value in after["metadata"].items() if key != "tensorkeep"} == before["metadata"]
    found = tensorkeep.verify(tmp_path)
    assert not found.is_damaged
    assert found.n_sha256 == 3


def test_two_editors_do_not_meet(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(), tmp_path)

    def edit_too(done: int, total: int) -> None:
        with pytest.raises(TensorkeepError) as refused:
            tensorkeep.edit(tmp_path, set_metadata={"a": "b"})
        assert isinstance(refused.value, tensorkeep.errors.BusyError)

    tensorkeep.add_sha256(tmp_path, progress=edit_too)

    assert_whole(tmp_path)


@pytest.mark.parametrize("case", CASES)
def test_killed_at_any_call_the_checkpoint_is_the_old_or_the_new_one(tmp_path: Path, case: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EDITOR), str(tmp_path), case], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

    counts = json.loads(done.stdout)

    assert counts["kills"] >= 12, "too few calls were seen to say anything"
    assert counts["old"] >= 5
    assert counts["new"] >= 1
