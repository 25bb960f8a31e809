"""A checkpoint of several files: saved, opened as one mapping, and read by anybody."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch

import tensorkeep
from tensorkeep.errors import (
    SharedMemoryError,
    SourceMissingError,
    TensorkeepError,
    TensorNotFoundError,
    TransportError,
    UnsupportedError,
)

Arrays = dict[str, np.ndarray]


def tensors_of(seed: int, n: int = 6) -> Arrays:
    random = np.random.default_rng(seed)
    return {f"layer.{place}.weight": random.random((10, 25), np.float32) for place in range(n)}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def shards(n: int, stem: str = "model") -> list[str]:
    return [f"{stem}-{number:05d}-of-{n:05d}.safetensors" for number in range(1, n + 1)]


INDEX = "model.safetensors.index.json"


def assert_holds(folder: Path, expected: Arrays) -> None:
    loaded = tensorkeep.load(folder)
    assert loaded.keys() == expected.keys()
    assert all(np.array_equal(loaded[name], array) for name, array in expected.items())
    found = tensorkeep.verify(folder)
    assert found.is_whole
    assert found.findings == ()


def test_what_fits_is_one_file(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(1), tmp_path / "ckpt")

    assert names_in(tmp_path / "ckpt") == ["model.safetensors"]
    assert_holds(tmp_path / "ckpt", tensors_of(1))
    assert isinstance(tensorkeep.open(tmp_path / "ckpt"), tensorkeep.TensorFile)


def test_what_does_not_is_several_with_an_index(tmp_path: Path) -> None:
    expected = tensors_of(1)
    tensorkeep.save_checkpoint(expected, tmp_path, max_shard_size="2KB", metadata={"step": "7"})

    assert names_in(tmp_path) == [*shards(3), INDEX]
    assert_holds(tmp_path, expected)
    index = json.loads((tmp_path / INDEX).read_text())
    assert list(index) == ["metadata", "weight_map"]
    assert index["metadata"]["total_size"] == 6000
    assert index["metadata"]["total_parameters"] == 1500
    read = {}
    for name in shards(3):
        read |= safetensors.numpy.load_file(tmp_path / name)
    assert all(np.array_equal(read[name], array) for name, array in expected.items())
    ckpt = tensorkeep.open(tmp_path / INDEX)
    assert isinstance(ckpt, tensorkeep.Checkpoint)
    assert ckpt.metadata == {"format": "pt", "step": "7"}
    assert list(ckpt) == list(expected)
    assert ckpt.nbytes == 6000
    assert ckpt.shard_of("layer.2.weight") == shards(3)[1]
    assert list(ckpt.shards) == shards(3)
    assert "3 shards" in repr(ckpt)
    with pytest.raises(TensorNotFoundError, match=r"Did you mean .*layer\.1\.weight"):
        ckpt["layer.1.wieght"]


def test_a_checkpoint_slices_like_a_file(tmp_path: Path) -> None:
    expected = tensors_of(2)
    tensorkeep.save_checkpoint(expected, tmp_path, max_shard_size=2000)
    with tensorkeep.open(tmp_path, framework="torch") as ckpt:
        part = ckpt["layer.4.weight"][3:5, ::-2]
        view = pickle.loads(pickle.dumps(ckpt)).select("layer.[01].*").strip_prefix("layer.")

    assert isinstance(part, torch.Tensor)
    assert np.array_equal(part.numpy(), expected["layer.4.weight"][3:5, ::-2])
    assert list(view.load()) == ["0.weight", "1.weight"]
    with pytest.raises(TransportError, match="closed"):
        ckpt["layer.4.weight"]


def test_large_tensors_can_be_split(tmp_path: Path) -> None:
    expected = {"a": np.arange(10, dtype=np.int16), "big": np.arange(4000, dtype=np.float32).reshape(100, 40)}
    tensorkeep.save_checkpoint(expected, tmp_path, max_shard_size="4KB", split_large=True)
    ckpt = tensorkeep.open(tmp_path)

    assert len(names_in(tmp_path)) == 6
    assert_holds(tmp_path, expected)
    assert np.array_equal(ckpt["big"][20:90:3, ::-1], expected["big"][20:90:3, ::-1])
    tensorkeep.save_checkpoint(ckpt, tmp_path / "again", layout=tmp_path / INDEX)
    assert names_in(tmp_path / "again") == [name for name in names_in(tmp_path) if name != "again"]
    assert_holds(tmp_path / "again", expected)
    tensorkeep.save_checkpoint(ckpt, tmp_path / "whole")
    assert names_in(tmp_path / "whole") == ["model.safetensors"]
    assert_holds(tmp_path / "whole", expected)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_pieces_are_cut_from_any_tensor(framework: str, tmp_path: Path) -> None:
    whole = np.arange(6000, dtype=np.float64).reshape(30, 200)
    big = whole.T if framework == "numpy" else torch.from_numpy(whole).T
    tensorkeep.save_checkpoint({"t": big}, tmp_path, max_shard_size="5KB", split_large=True)
    again = tensorkeep.open(tmp_path).cast("f32")
    tensorkeep.save_checkpoint(again, tmp_path / "f32", max_shard_size="5KB", split_large=True)

    assert_holds(tmp_path, {"t": whole.T})
    assert_holds(tmp_path / "f32", {"t": whole.T.astype(np.float32)})


@pytest.mark.parametrize(("first", "second"), [("2KB", "2KB"), ("2KB", "3KB"), ("2KB", "1GB"), ("1GB", "2KB")])
def test_a_save_replaces_the_whole_old_set_and_nothing_else(first: str, second: str, tmp_path: Path) -> None:
    others = ["config.json", "model-mybackup-00001-of-00002.safetensors", "notes.txt", "tokenizer.json"]
    for name in others:
        (tmp_path / name).write_text(name)
    tensorkeep.save_checkpoint(tensors_of(9), tmp_path, max_shard_size="2KB", variant="fp16")
    tensorkeep.save_checkpoint(tensors_of(1), tmp_path, max_shard_size=first)
    tensorkeep.save_checkpoint(tensors_of(2), tmp_path, max_shard_size=second)
    fresh = tmp_path / "fresh"
    tensorkeep.save_checkpoint(tensors_of(2), fresh, max_shard_size=second)

    variant = [*shards(3, "model.fp16"), "model.safetensors.index.fp16.json"]
    assert names_in(tmp_path) == sorted(["fresh", *others, *variant, *names_in(fresh)])
    assert all((tmp_path / name).read_text() == name for name in others)
    assert all((tmp_path / name).read_bytes() == (fresh / name).read_bytes() for name in names_in(fresh))
    assert_holds(tmp_path, tensors_of(2))
    with tensorkeep.open(tmp_path, variant="fp16") as half:
        assert np.array_equal(half["layer.0.weight"][...], tensors_of(9)["layer.0.weight"])


def test_a_checkpoint_can_be_saved_over_itself(tmp_path: Path) -> None:
    expected = tensors_of(3)
    tensorkeep.save_checkpoint(expected, tmp_path, max_shard_size="2KB")
    tensorkeep.save_checkpoint(tensorkeep.open(tmp_path), tmp_path, max_shard_size="4KB")

    assert names_in(tmp_path) == [*shards(2), INDEX]
    assert_holds(tmp_path, expected)


def test_sha256_is_the_name_that_the_hub_gives(tmp_path: Path) -> None:
    import hashlib

    tensorkeep.save_checkpoint(tensors_of(1), tmp_path, max_shard_size="2KB", sha256=True)
    ckpt = tensorkeep.open(tmp_path)
    assert isinstance(ckpt, tensorkeep.Checkpoint)
    assert ckpt.index.shards is not None

    for name, record in ckpt.index.shards.items():
        assert record.sha256 == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    assert tensorkeep.verify(tmp_path).n_sha256 == 3
    tensorkeep.save_checkpoint(tensors_of(1), tmp_path, sha256=True)
    assert names_in(tmp_path) == ["model.safetensors", INDEX]
    assert tensorkeep.verify(tmp_path).n_sha256 == 1


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        tensorkeep.save_checkpoint(tensors_of(1), tmp_path / folder, max_shard_size="2KB")

    assert names_in(tmp_path / "a") == names_in(tmp_path / "b")
    for name in names_in(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_progress_counts_all_bytes_and_can_end_the_save(tmp_path: Path) -> None:
    big = {f"w{n}": np.full(20_000_000, n, np.uint8) for n in range(5)}
    seen: list[tuple[int, int]] = []
    tensorkeep.save_checkpoint(
        big, tmp_path, max_shard_size="20MB", durable=False, progress=lambda done, of: seen.append((done, of))
    )

    assert seen == sorted(seen)
    assert seen[-1] == (100_000_000, 100_000_000)
    before = {name: (tmp_path / name).stat().st_ino for name in names_in(tmp_path)}

    def stop(done: int, of: int) -> None:
        if done > 30_000_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tensorkeep.save_checkpoint(big, tmp_path, max_shard_size="40MB", durable=False, progress=stop)
    assert {name: (tmp_path / name).stat().st_ino for name in names_in(tmp_path)} == before


@pytest.mark.parametrize("size", [0, -1, "10", "5 XB", "-5MB", True, "0GB", None])
def test_nonsense_is_refused_before_anything_is_written(size: object, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError):
        tensorkeep.save_checkpoint(tensors_of(1), tmp_path / "ckpt", max_shard_size=size)  # type: ignore[arg-type]
    assert names_in(tmp_path) == []


def test_a_failed_save_leaves_no_directory_behind(tmp_path: Path) -> None:
    tied = np.zeros(3)
    with pytest.raises(SharedMemoryError):
        tensorkeep.save_checkpoint({"a": tied, "b": tied}, tmp_path / "ckpt", ties="error")
    with pytest.raises(TensorkeepError):
        tensorkeep.save_checkpoint({"w": np.zeros(3)}, tmp_path / "ckpt", metadata={"a": "\ud800"})
    with pytest.raises(SourceMissingError, match="parent"):
        tensorkeep.save_checkpoint(tensors_of(1), tmp_path / "no" / "ckpt")
    (tmp_path / "file").touch()
    with pytest.raises(TransportError):
        tensorkeep.save_checkpoint(tensors_of(1), tmp_path / "file")

    assert names_in(tmp_path) == ["file"]


def test_directories_are_found_by_any_usual_name(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match=r"expected model\.safetensors or model\.safetensors\.index\.json"):
        tensorkeep.open(tmp_path)
    tensorkeep.save_checkpoint(tensors_of(1), tmp_path, base_name="adapter_model", max_shard_size="2KB")
    only = tensorkeep.open(tmp_path)
    tensorkeep.save_checkpoint(tensors_of(2), tmp_path, base_name="other")

    assert np.array_equal(only["layer.0.weight"][...], tensors_of(1)["layer.0.weight"])
    with pytest.raises(UnsupportedError, match="several checkpoints"):
        tensorkeep.open(tmp_path)
    tensorkeep.save_checkpoint(tensors_of(3), tmp_path)
    assert np.array_equal(tensorkeep.open(tmp_path)["layer.0.weight"][...], tensors_of(3)["layer.0.weight"])
    assert list(tensorkeep.open(tmp_path / "other.safetensors")) == list(tensors_of(2))


def test_an_empty_checkpoint_is_one_too(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint({}, tmp_path)

    assert tensorkeep.load(tmp_path) == {}
    assert tensorkeep.verify(tmp_path).is_whole


def test_a_single_file_is_not_put_beside_an_index(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensors_of(1), tmp_path, max_shard_size="2KB")
    with pytest.raises(UnsupportedError, match=r"save_checkpoint"):
        tensorkeep.save(tensors_of(2), tmp_path / "model.safetensors")

    assert_holds(tmp_path, tensors_of(1))


def test_a_variant_beside_the_checkpoint_is_not_another_one(tmp_path: Path) -> None:
    for variant in (None, "fp16", "bf16"):
        tensorkeep.save_checkpoint({"w": np.ones(2)}, tmp_path, base_name="diffusion_pytorch_model", variant=variant)

    with tensorkeep.open(tmp_path) as opened:
        assert Path(opened.path).name == "diffusion_pytorch_model.safetensors"
    assert tensorkeep.verify(tmp_path).is_whole
    (tmp_path / "diffusion_pytorch_model.safetensors").unlink()
    with pytest.raises(UnsupportedError, match="several checkpoints"):
        tensorkeep.open(tmp_path)
