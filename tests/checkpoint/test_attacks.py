"""Ways in which a checkpoint could be lost or made unreadable, each of which somebody found."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import IntegrityError, RefusedError, SourceChangedError, TensorNotFoundError, UnsupportedError

OLD = {f"w{n}": np.full(1000, n, np.float32) for n in range(4)}
NEW = {name: array + 100 for name, array in OLD.items()}


def value(folder: Path, **options: object) -> float:
    with tensorkeep.open(folder, **options) as ckpt:  # type: ignore[arg-type]
        return float(ckpt["w0"][0])


@pytest.mark.parametrize("dtype", [ml_dtypes.float4_e2m1fn, ml_dtypes.float6_e2m3fn])
def test_packed_rows_are_cut_where_bytes_end(dtype: type, tmp_path: Path) -> None:
    elements = (np.arange(48, dtype=np.uint8).reshape(16, 3) % 8).view(dtype)
    tensorkeep.save_checkpoint({"q": elements}, tmp_path)
    tensorkeep.reshard(tmp_path, tmp_path, max_shard_size=9, split_large=True)

    assert np.array_equal(tensorkeep.load(tmp_path)["q"].view(np.uint8), elements.view(np.uint8))
    assert tensorkeep.verify(tmp_path).is_whole


def test_a_dtype_that_nobody_knows_is_never_cut(tmp_path: Path) -> None:
    header = b'{"q":{"dtype":"F4_NEW","shape":[4,3],"data_offsets":[0,6]}}     '
    (tmp_path / "q.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"abcdef")
    tensorkeep.reshard(tmp_path / "q.safetensors", tmp_path / "out", max_shard_size=2, split_large=True)

    (path,) = (tmp_path / "out").iterdir()
    assert path.read_bytes().endswith(b"abcdef")


def test_a_layout_gives_places_not_names_of_other_checkpoints(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(OLD, tmp_path, max_shard_size="8KB")
    index = tmp_path / "model.safetensors.index.json"
    tensorkeep.save_checkpoint(NEW, tmp_path, layout=index, variant="bf16")

    assert value(tmp_path) == 0
    assert value(tmp_path, variant="bf16") == 100
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UnsupportedError, match="not a shard"):
        tensorkeep.save_checkpoint(NEW, tmp_path, layout=tensorkeep.layout.Index(dict.fromkeys(NEW, "config.json")))
    assert (tmp_path / "config.json").read_text() == "{}"


@pytest.mark.parametrize(
    "names", [{"variant": "v1.0"}, {"base_name": ".h"}, {"base_name": "model-00001-of-00002"}, {"variant": "a/b"}]
)
def test_names_that_could_not_be_found_again_are_refused(names: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="not usable in file names"):
        tensorkeep.save_checkpoint(OLD, tmp_path, **names)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_base_with_dots_gets_the_usual_index(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(OLD, tmp_path, base_name="Llama-3.1-8B", sha256=True)

    assert (tmp_path / "Llama-3.1-8B.safetensors.index.json").exists()
    assert value(tmp_path) == 0


def test_a_save_that_came_meanwhile_is_not_undone(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(OLD, tmp_path)
    seen: list[int] = []

    def save_once(done: int, of: int) -> None:
        if not seen:
            seen.append(done)
            tensorkeep.save_checkpoint(NEW, tmp_path / "elsewhere")
            os.replace(tmp_path / "elsewhere" / "model.safetensors", tmp_path / "model.safetensors")

    with pytest.raises(SourceChangedError, match="saved again"):
        tensorkeep.reshard(tmp_path, tmp_path, cast="bf16", progress=save_once)
    assert value(tmp_path) == 100


def test_metadata_that_looks_like_digests_cannot_be_set(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(OLD, tmp_path)
    with pytest.raises(RefusedError, match="looks like the digests"):
        tensorkeep.edit(tmp_path, set_metadata={"note": '{"tensorkeep":1}'})

    assert value(tmp_path) == 0


def test_a_name_whose_shard_is_missing_is_damage_not_a_wrong_name(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(OLD, tmp_path, max_shard_size="8KB")
    (tmp_path / "model-00001-of-00002.safetensors").unlink()

    assert [finding.kind for finding in tensorkeep.verify(tmp_path, names=["w0"]).findings] == ["missing"]
    with pytest.raises(TensorNotFoundError):
        tensorkeep.verify(tmp_path, names=["v*"])


def test_arguments_are_not_mistaken_for_damage(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(OLD, tmp_path, max_shard_size="8KB")

    with pytest.raises(UnsupportedError, match="framework torchh"):
        tensorkeep.open(tmp_path, framework="torchh")
    with pytest.raises(UnsupportedError, match="backend 'foo'"):
        tensorkeep.open(tmp_path, backend="foo")  # type: ignore[arg-type]


def test_an_index_that_was_changed_on_purpose_can_still_be_read(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(OLD, tmp_path, max_shard_size="8KB")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("  ", " "))

    with pytest.raises(IntegrityError):
        tensorkeep.open(tmp_path)
    assert value(tmp_path, check=False) == 0
    tensorkeep.save_checkpoint(NEW, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_nothing_dropped_and_nothing_left_are_errors(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(OLD, tmp_path)
    for pattern, message in (("zzz*", "nothing to drop"), ("*", "nothing is left")):
        with pytest.raises(TensorNotFoundError, match=message):
            tensorkeep.reshard(tmp_path, tmp_path, drop=pattern)

    assert value(tmp_path) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_the_lock_of_a_dead_process_does_not_live_on_in_its_children(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(OLD, tmp_path)
    reading, writing = os.pipe()
    parent = os.fork()
    if not parent:

        def fork(done: int, of: int) -> None:
            child = os.fork()
            if child:
                os.write(writing, child.to_bytes(8, "little"))
            signal.pause()

        tensorkeep.save_checkpoint(NEW, tmp_path, progress=fork)
        os._exit(1)
    child = int.from_bytes(os.read(reading, 8), "little")
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    try:
        tensorkeep.save_checkpoint({**NEW, "w0": NEW["w0"] + 1}, tmp_path)
    finally:
        os.kill(child, signal.SIGKILL)
    assert value(tmp_path) == 101


def test_one_tensor_is_one_tensor(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.zeros(2)}, tmp_path / "one.safetensors")

    assert "1 tensor," in repr(tensorkeep.open(tmp_path / "one.safetensors"))
