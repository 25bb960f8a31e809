"""Finished checkpoints written anew, and several made one: by a view and a save, bytes from file to file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

import tensorkeep
from tensorkeep.errors import (
    IntegrityError,
    RefusedError,
    SourceMissingError,
    TensorkeepError,
    TensorNotFoundError,
    UnsupportedError,
)
from tests.support.checkpoint.rewritten import INDEX, Arrays, assert_same, assert_whole, read_by_others


def tensors_of(seed: int, n: int = 6, prefix: str = "layer") -> Arrays:
    random = np.random.default_rng(seed)
    return {f"{prefix}.{place}.weight": random.random((10, 25), np.float32) for place in range(n)}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def digests_of(path: Path) -> dict[str, bytes | None]:
    with tensorkeep.open(path) as tensors:
        return {name: lazy.digest for name, lazy in tensors.items()}


def flip_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("entry", ["", INDEX])
def test_shards_become_one_file_with_the_same_digests(tmp_path: Path, entry: str) -> None:
    expected = tensors_of(1)
    tensorkeep.save_checkpoint(expected, tmp_path / "a", max_shard_size="2KB", metadata={"step": "7"})

    tensorkeep.reshard(tmp_path / "a" / entry, tmp_path / "b")

    assert names_in(tmp_path / "b") == ["model.safetensors"]
    assert_same(read_by_others(tmp_path / "b"), expected)
    assert_whole(tmp_path / "b")
    assert digests_of(tmp_path / "b") == digests_of(tmp_path / "a")
    assert tensorkeep.open(tmp_path / "b").metadata == {"format": "pt", "step": "7"}
    assert len(names_in(tmp_path / "a")) == 4, "the source is another"


def test_a_file_of_the_reference_becomes_shards_that_have_digests(tmp_path: Path) -> None:
    expected = tensors_of(1)
    safetensors.numpy.save_file(expected, tmp_path / "plain.safetensors")

    tensorkeep.reshard(tmp_path / "plain.safetensors", tmp_path / "b", max_shard_size="2KB", sha256=True)

    assert_same(read_by_others(tmp_path / "b"), expected)
    assert_whole(tmp_path / "b")
    assert tensorkeep.verify(tmp_path / "b").n_sha256 == 3


def test_the_source_can_be_the_target(tmp_path: Path) -> None:
    expected = tensors_of(1)
    tensorkeep.save_checkpoint(expected, tmp_path, max_shard_size="2KB")

    for size, n_shards in (("1KB", 6), ("3KB", 2), ("1GB", 1), ("2KB", 3)):
        tensorkeep.reshard(tmp_path, tmp_path, max_shard_size=size)

        assert len(names_in(tmp_path)) == n_shards + (n_shards > 1)
        assert_same(read_by_others(tmp_path), expected)
        assert_whole(tmp_path)


def test_a_failure_leaves_source_and_target_as_they_were(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(1), tmp_path, max_shard_size="2KB")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tensorkeep.reshard(tmp_path, tmp_path, max_shard_size="1KB", progress=stop)

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_all_options_of_a_view_apply_in_their_order(tmp_path: Path) -> None:
    tensors = {f"model.{name}": torch.arange(6.0).reshape(2, 3) + n for n, name in enumerate("abcd")}
    tensors["model.steps"] = torch.arange(3)
    tensors["other"] = torch.ones(1)
    tensorkeep.save_checkpoint(tensors, tmp_path / "a", max_shard_size=50)

    tensorkeep.reshard(
        tmp_path / "a",
        tmp_path / "b",
        select=["model.*", lambda name: name == "other"],
        drop="*.b",
        rename={"model.c": "model.see"},
        strip_prefix="model.",
        cast="bf16",
        metadata={"made": "small"},
    )

    read = safetensors.torch.load_file(tmp_path / "b" / "model.safetensors")
    assert read.keys() == {"a", "see", "d", "steps", "other"}
    assert torch.equal(read["see"], tensors["model.c"].bfloat16())
    assert torch.equal(read["steps"], tensors["model.steps"])
    assert tensorkeep.open(tmp_path / "b").metadata == {"format": "pt", "made": "small"}
    assert_whole(tmp_path / "b")
    before, after = digests_of(tmp_path / "a"), digests_of(tmp_path / "b")
    assert after["steps"] == before["model.steps"]
    assert after["a"] != before["model.a"]


def test_tensors_are_cut_and_put_together_again(tmp_path: Path) -> None:
    expected = tensors_of(1)
    tensorkeep.save_checkpoint(expected, tmp_path / "a")
    whole = digests_of(tmp_path / "a")

    tensorkeep.reshard(tmp_path / "a", tmp_path / "b", max_shard_size=300, split_large=True)
    assert "layer.0.weight[0:3]" in read_by_others(tmp_path / "b")
    assert_whole(tmp_path / "b")
    assert_same(tensorkeep.load(tmp_path / "b"), expected)

    tensorkeep.reshard(tmp_path / "b", tmp_path / "c", layout=tmp_path / "b" / INDEX)
    assert names_in(tmp_path / "c") == names_in(tmp_path / "b")
    assert_same(tensorkeep.load(tmp_path / "c"), expected)

    tensorkeep.reshard(tmp_path / "b", tmp_path / "b")
    assert_same(read_by_others(tmp_path / "b"), expected)
    assert digests_of(tmp_path / "b") == whole


def test_the_layout_of_another_checkpoint_is_followed(tmp_path: Path) -> None:
    expected = tensors_of(1)
    tensorkeep.save_checkpoint(tensors_of(2), tmp_path / "like", max_shard_size="2KB")
    tensorkeep.save_checkpoint(expected, tmp_path / "a")

    tensorkeep.reshard(tmp_path / "a", tmp_path / "b", layout=tmp_path / "like" / INDEX)

    assert names_in(tmp_path / "b") == names_in(tmp_path / "like")
    assert_same(read_by_others(tmp_path / "b"), expected)


def test_damage_travels_with_its_digest_and_is_still_found(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(1), tmp_path / "a")
    flip_last_byte(tmp_path / "a" / "model.safetensors")

    tensorkeep.reshard(tmp_path / "a", tmp_path / "b", max_shard_size="2KB")

    assert [finding.tensor for finding in tensorkeep.verify(tmp_path / "b").findings] == ["layer.5.weight"]


@pytest.mark.parametrize(
    "options",
    [{"cast": "f16"}, {"split_large": True, "max_shard_size": 300}, {"layout": True}],
    ids=lambda options: next(iter(options)),
)
def test_damage_is_not_given_a_digest_of_its_own(tmp_path: Path, options: dict[str, object]) -> None:
    tensorkeep.save_checkpoint(tensors_of(1), tmp_path / "a")
    if "layout" in options:
        tensorkeep.reshard(tmp_path / "a", tmp_path / "like", split_large=True, max_shard_size=300)
        options = {"layout": tmp_path / "like" / INDEX}
    flip_last_byte(tmp_path / "a" / "model.safetensors")

    with pytest.raises(IntegrityError, match=r"layer\.5\.weight"):
        tensorkeep.reshard(tmp_path / "a", tmp_path / "b", **options)
    assert not (tmp_path / "b").exists()

    tensorkeep.reshard(tmp_path / "a", tmp_path / "b", drop="layer.5.*", **options)
    assert_whole(tmp_path / "b")


def test_a_damaged_piece_is_not_hidden_in_a_whole_tensor(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(1), tmp_path, max_shard_size=300, split_large=True)
    shard = sorted(tmp_path.glob("*.safetensors"))[2]
    flip_last_byte(shard)

    with pytest.raises(IntegrityError, match=r"layer\.0\.weight\[6:9\]"):
        tensorkeep.reshard(tmp_path, tmp_path)

    assert shard.exists()


def test_progress_counts_what_is_checked_and_what_is_written(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(1), tmp_path / "a", max_shard_size="2KB")
    kept: list[tuple[int, int]] = []
    cast: list[tuple[int, int]] = []

    tensorkeep.reshard(tmp_path / "a", tmp_path / "b", progress=lambda *done: kept.append(done))
    tensorkeep.reshard(tmp_path / "a", tmp_path / "c", cast="f16", progress=lambda *done: cast.append(done))

    assert kept[-1] == (6000, 6000)
    assert cast[-1] == (9000, 9000)
    assert [done for done, _ in cast] == sorted(done for done, _ in cast)


def test_checkpoints_are_merged(tmp_path: Path) -> None:
    first, second = tensors_of(1, prefix="encoder"), tensors_of(2, prefix="decoder")
    tensorkeep.save_checkpoint(first, tmp_path / "a", max_shard_size="2KB", metadata={"who": "a", "a": "1"})
    tensorkeep.save(second, tmp_path / "b.safetensors", metadata={"who": "b", "b": "2"})

    tensorkeep.join([tmp_path / "a", tmp_path / "b.safetensors"], tmp_path / "c", max_shard_size="4KB")

    assert_same(read_by_others(tmp_path / "c"), first | second)
    assert_whole(tmp_path / "c")
    assert tensorkeep.open(tmp_path / "c").metadata == {"a": "1", "b": "2", "format": "pt", "who": "a"}
    assert digests_of(tmp_path / "c") == digests_of(tmp_path / "a") | digests_of(tmp_path / "b.safetensors")


def test_a_tensor_in_two_checkpoints_is_refused_by_both_names(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(1), tmp_path / "a")
    tensorkeep.save_checkpoint(tensors_of(1, n=1), tmp_path / "b")

    with pytest.raises(RefusedError, match=r"`layer\.0\.weight` is in two.*/a/.*/b/") as refused:
        tensorkeep.join([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    assert refused.value.tensor == "layer.0.weight"
    with pytest.raises(RefusedError, match="is in two"):
        tensorkeep.join([tmp_path / "a", tmp_path / "a"], tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_impossible_requests_say_so_and_change_nothing(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(1), tmp_path / "a")
    requests: list[tuple[type[TensorkeepError], dict[str, object]]] = [
        (TensorNotFoundError, {"select": "nothing.*"}),
        (TensorNotFoundError, {"rename": {"nothing": "x"}}),
        (TensorNotFoundError, {"strip_prefix": "model."}),
        (RefusedError, {"rename": {"layer.0.weight": "layer.1.weight"}}),
        (UnsupportedError, {"max_shard_size": "5 bananas"}),
        (UnsupportedError, {"base_name": "../model"}),
        (TensorkeepError, {"cast": "int8"}),
    ]

    for error, options in requests:
        with pytest.raises(error):
            tensorkeep.reshard(tmp_path / "a", tmp_path / "b", **options)
    with pytest.raises(SourceMissingError):
        tensorkeep.reshard(tmp_path / "missing", tmp_path / "b")
    with pytest.raises(UnsupportedError, match="nothing to join"):
        tensorkeep.join([], tmp_path / "b")

    assert names_in(tmp_path) == ["a"]
    assert names_in(tmp_path / "a") == ["model.safetensors"]


PEAKS_OF_512_MIB = """
import json, resource, sys
from pathlib import Path
import tensorkeep

folder = Path(sys.argv[1])
nbytes = 2**27
header = {f"w{n}": {"dtype": "U8", "shape": [1024, nbytes // 1024], "data_offsets": [n * nbytes, (n + 1) * nbytes]}
          for n in range(4)}
text = json.dumps(header).encode()
with open(folder / "model.safetensors", "wb") as file:
    file.write(len(text).to_bytes(8, "little") + text)
    file.truncate(8 + len(text) + 4 * nbytes)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

before = peak()
tensorkeep.reshard(folder, folder, max_shard_size="150MB", durable=False)
hashed = peak()
tensorkeep.reshard(folder, folder, max_shard_size="2GB", durable=False)
tensorkeep.edit(folder, set_metadata={"a": "b"}, durable=False)
print(json.dumps([hashed - before, peak() - hashed]))
"""


def test_memory_is_constant(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PEAKS_OF_512_MIB, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

    hashed, copied = json.loads(done.stdout)

    assert hashed < 100e6, "reading what has no digest"
    assert copied < 10e6, "the kernel copies what has one"
    assert tensorkeep.open(tmp_path).nbytes == 2**29
    (tmp_path / "model.safetensors").unlink()
