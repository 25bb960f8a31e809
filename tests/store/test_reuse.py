"""Files that are not written again: they are the same file, and either step can lose them."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.transport import LocalFile, transaction
from tests.support.store.run_states import N_LAYERS, shards, state, step_of, store

FROZEN_NBYTES = N_LAYERS * 512 * 300 * 4


def linked(root: Path, step: int) -> list[str]:
    return [name for name, path in shards(root, step).items() if path.stat().st_nlink > 1]


def allocated(root: Path) -> int:
    """Return the bytes that all files take on the disk, each once."""
    found = {path.stat().st_ino: path.stat().st_blocks * 512 for path in root.rglob("*") if path.is_file()}
    return sum(found.values())


def test_what_did_not_change_is_not_written_again(tmp_path: Path) -> None:
    kept = store(tmp_path)
    kept.save(1, state(1))
    first = allocated(tmp_path)

    kept.save(2, state(2))

    assert allocated(tmp_path) - first < 0.15 * first
    assert sum(path.stat().st_size for path in shards(tmp_path, 2).values()) > FROZEN_NBYTES
    assert linked(tmp_path, 1) == linked(tmp_path, 2) != []
    assert [step_of(kept.load(step)) for step in (1, 2)] == [1, 2]
    assert all(tensorkeep.verify(kept.path_of(step)).is_whole for step in (1, 2))


def test_files_of_another_alignment_are_not_shared_but_later_ones_are(tmp_path: Path) -> None:
    store(tmp_path).save(1, state(1))
    aligned = store(tmp_path, align=4096)

    for step in (2, 3):
        aligned.save(step, state(step))

    assert linked(tmp_path, 1) == []
    assert linked(tmp_path, 2) == linked(tmp_path, 3) != []
    assert [step_of(aligned.load(step)) for step in (1, 2, 3)] == [1, 2, 3]
    with aligned.open(3) as opened:
        assert all(t.span.start % 4096 == 0 for t in opened.values() if t.nbytes and t.nbytes % 4096 == 0)


@pytest.mark.parametrize("removed", [1, 2])
def test_either_is_whole_when_the_other_is_removed(tmp_path: Path, removed: int) -> None:
    kept = store(tmp_path)
    for step in (1, 2):
        kept.save(step, state(step))

    kept.remove(removed)

    assert step_of(kept.load(3 - removed)) == 3 - removed
    assert linked(tmp_path, 3 - removed) == []


def test_an_edit_of_one_leaves_the_other_as_it_is(tmp_path: Path) -> None:
    kept = store(tmp_path)
    for step in (1, 2):
        kept.save(step, state(step))

    tensorkeep.edit(kept.path_of(1), set_metadata={"note": "edited"})

    assert step_of(kept.load(2)) == 2
    assert tensorkeep.verify(kept.path_of(2)).is_whole
    with kept.open(1) as first, kept.open(2) as second:
        assert (first.metadata.get("note"), second.metadata.get("note")) == ("edited", None)
    kept.save(3, state(3))
    assert step_of(kept.load(3)) == 3
    assert linked(tmp_path, 3) == linked(tmp_path, 2), "the files of an edited step are others"


def test_one_changed_number_is_written(tmp_path: Path) -> None:
    kept = store(tmp_path)
    large = np.zeros(3_000_000, np.float32)
    kept.save(1, {"large": large})
    large[-1] = 1

    kept.save(2, {"large": large})

    assert linked(tmp_path, 2) == []
    assert kept.load(2)["large"][-1] == 1
    assert kept.load(1)["large"][-1] == 0


@pytest.mark.parametrize(
    "other",
    [
        np.zeros((3, 2), np.float32),
        np.zeros((2, 3), np.int32),
        np.zeros((2, 3), np.float32)[:, :0],
        np.full((2, 3), -0.0, np.float32),
    ],
    ids=["shape", "dtype", "empty", "minus zero"],
)
def test_only_the_same_tensor_is_the_same(tmp_path: Path, other: np.ndarray) -> None:
    kept = store(tmp_path)
    kept.save(1, {"a": np.zeros((2, 3), np.float32)})

    kept.save(2, {"a": other})

    assert linked(tmp_path, 2) == []
    np.testing.assert_array_equal(kept.load(2)["a"], other, strict=True)
    assert np.signbit(kept.load(2)["a"]).all() == np.signbit(other).all()


def test_other_names_and_other_metadata_are_other_files(tmp_path: Path) -> None:
    kept = store(tmp_path)
    kept.save(1, {"a": np.zeros(3)})

    kept.save(2, {"b": np.zeros(3)})
    kept.save(3, {"b": np.zeros(3)}, metadata={"note": "x"})
    kept.save(4, {"b": np.zeros(3)}, metadata={"note": "x"})

    assert [linked(tmp_path, step) != [] for step in (2, 3, 4)] == [False, True, True]
    assert [kept.open(step).metadata.get("note") for step in (2, 3, 4)] == [None, "x", "x"]


def test_files_that_hold_both_kinds_are_taken_apart(tmp_path: Path) -> None:
    kept = store(tmp_path, keep_last=10)
    model = {f"layers.{n}.weight": np.full(50_000, n, np.float32) for n in range(10)}
    grown = []

    for step in range(1, 6):
        model["layers.9.weight"] = np.full(50_000, -step, np.float32)
        before = allocated(tmp_path)
        kept.save(step, {"model": model})
        grown.append(allocated(tmp_path) - before)

    assert [nbytes > 1_500_000 for nbytes in grown] == [True, True, True, False, False]
    assert grown[3] < 0.15 * grown[0]
    assert all(kept.load(step)["model"]["layers.9.weight"][0] == -step for step in range(1, 6))


def test_a_step_that_is_saved_again_reuses_its_own_files(tmp_path: Path) -> None:
    kept = store(tmp_path)
    kept.save(1, state(1))
    inodes = {path.stat().st_ino for path in shards(tmp_path, 1).values()}

    kept.save(1, state(1), {"valid_loss": 2.0})

    assert {path.stat().st_ino for path in shards(tmp_path, 1).values()} == inodes
    assert kept.metrics_of(1) == {"valid_loss": 2.0}
    assert tensorkeep.verify(kept.path_of(1)).is_whole
    assert sorted(path.name for path in Path(kept.path_of(1)).iterdir()) == [
        *shards(tmp_path, 1),
        "model.safetensors.index.json",
    ]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EXDEV, errno.EMLINK])
def test_where_files_have_one_name_they_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    kept = store(tmp_path)
    kept.save(1, state(1))

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    kept.save(2, state(2))

    assert linked(tmp_path, 2) == []
    assert step_of(kept.load(2)) == 2
    assert tensorkeep.verify(kept.path_of(2)).is_whole


def test_a_file_that_was_cut_off_is_written_again(tmp_path: Path) -> None:
    kept = store(tmp_path)
    kept.save(1, state(1))
    largest = max(shards(tmp_path, 1).values(), key=lambda path: path.stat().st_size)

    with kept.open(1) as older:
        os.truncate(largest, 5000)
        tensorkeep.save_checkpoint(state(2), tmp_path / "new", layout=older.index, reuse=older, index_metadata={})

    assert step_of(tensorkeep.load(tmp_path / "new")) == 2
    kept.save(2, state(2))
    assert step_of(kept.load()) == 2


def damage(path: Path) -> None:
    """Change one byte in the middle of a file, in place."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def largest(root: Path, step: int) -> Path:
    return max(shards(root, step).values(), key=lambda path: path.stat().st_size)


def test_a_file_that_was_damaged_is_written_again(tmp_path: Path) -> None:
    kept = store(tmp_path)
    kept.save(1, state(1))
    damage(largest(tmp_path, 1))

    for step in (2, 3, 4, 5):
        kept.save(step, state(step))
        assert tensorkeep.verify(kept.path_of(step)).is_whole

    assert kept.steps() == [3, 4, 5]
    assert step_of(kept.load()) == 5
    assert os.path.samefile(largest(tmp_path, 4), largest(tmp_path, 5)), "the new one is used again"


def test_every_byte_of_a_file_is_looked_at(tmp_path: Path) -> None:
    values = {"a": np.arange(1001, dtype=np.uint8), "b": np.arange(300_001, dtype=np.uint8), "c": np.arange(7.0)}
    tensorkeep.save_checkpoint(values, tmp_path / "old", index_metadata={})
    path = tmp_path / "old" / "model.safetensors"
    with tensorkeep.open(path) as file:
        start = file.data_start
    whole = path.read_bytes()

    for place in [*range(start, len(whole), 9973), *(len(whole) - n for n in range(1, 9))]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 128]) + whole[place + 1 :])
        with tensorkeep.open(tmp_path / "old") as older:
            tensorkeep.save_checkpoint(values, tmp_path / "new", reuse=older, index_metadata={})
        assert not os.path.samefile(path, tmp_path / "new" / "model.safetensors"), place
        assert (tmp_path / "new" / "model.safetensors").read_bytes() == whole


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_what_was_loaded_from_a_damaged_file_unchecked_makes_a_whole_step(tmp_path: Path, framework: str) -> None:
    kept = store(tmp_path)
    kept.save(1, state(1))
    damage(largest(tmp_path, 1))
    loaded = kept.load(1, framework=framework, verify=False)

    kept.save(2, loaded)

    assert tensorkeep.verify(kept.path_of(2)).is_whole
    assert kept.load()["step"] == 1


def test_tensors_of_open_files_are_checked_too(tmp_path: Path) -> None:
    tensors: dict[str, Any] = {"a": np.arange(1000.0), "b": np.arange(1000)}
    tensorkeep.save_checkpoint(tensors, tmp_path / "one", index_metadata={})
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    damage(tmp_path / "two" / "model.safetensors")

    with tensorkeep.open(tmp_path / "one") as good, tensorkeep.open(tmp_path / "two") as damaged:
        tensorkeep.save_checkpoint(good, tmp_path / "three", reuse=damaged, index_metadata={})
        tensorkeep.save_checkpoint(good, tmp_path / "four", reuse=good, index_metadata={})

    assert tensorkeep.verify(tmp_path / "three").is_whole
    assert os.path.samefile(tmp_path / "one" / "model.safetensors", tmp_path / "four" / "model.safetensors")


def test_a_file_that_is_another_by_now_is_not_linked(tmp_path: Path) -> None:
    old = tmp_path / "old.safetensors"
    tensorkeep.save({"a": np.zeros(3)}, old)
    source = LocalFile(str(old))
    head = bytes(source.read(tensorkeep.transport.ByteRange(0, 64)))
    old.write_bytes(b"something else")
    shutil.copy(old, tmp_path / "copy")
    os.replace(tmp_path / "copy", old)
    (tmp_path / "new").mkdir()

    with transaction(tmp_path / "new", "model") as staging:
        assert not staging.link("model.safetensors", source, head)
        staging.commit()

    assert list((tmp_path / "new").iterdir()) == []


def test_a_file_that_is_about_to_be_edited_is_not_linked(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint({"a": np.zeros(3)}, tmp_path / "old")
    source = LocalFile(str(tmp_path / "old" / "model.safetensors"))
    head = bytes(source.read(tensorkeep.transport.ByteRange(0, 64)))
    (tmp_path / "new").mkdir()

    with transaction(tmp_path / "new", "model") as staging:
        with transaction(tmp_path / "old", "model"):
            assert not staging.link("model.safetensors", source, head)
        assert staging.link("model.safetensors", source, head)
        staging.commit()

    assert os.path.samefile(tmp_path / "old" / "model.safetensors", tmp_path / "new" / "model.safetensors")


def test_save_checkpoint_reuses_the_files_of_an_open_checkpoint(tmp_path: Path) -> None:
    tensors: dict[str, Any] = {"a": np.arange(1000.0), "b": np.arange(1000)}
    options: dict[str, Any] = {"max_shard_size": 8000, "durable": True}
    tensorkeep.save_checkpoint(tensors, tmp_path / "one", **options)
    tensors["b"] = tensors["b"] + 1

    with tensorkeep.open(tmp_path / "one") as older:
        tensorkeep.save_checkpoint(tensors, tmp_path / "two", reuse=older, **options)
        tensorkeep.save_checkpoint(older, tmp_path / "three", reuse=older, **options)

    tensorkeep.save_checkpoint(tensors, tmp_path / "alone", **options)
    for path in (tmp_path / "alone").iterdir():
        assert (tmp_path / "two" / path.name).read_bytes() == path.read_bytes()
    assert [path.stat().st_nlink for path in sorted((tmp_path / "two").glob("*.safetensors"))] == [3, 1]
    assert [path.stat().st_nlink for path in sorted((tmp_path / "three").glob("*.safetensors"))] == [3, 2]


def test_progress_counts_what_need_not_be_written(tmp_path: Path) -> None:
    kept = store(tmp_path)
    kept.save(1, state(1))
    seen: list[tuple[int, int]] = []

    kept.save(2, state(2), progress=lambda done, total: seen.append((done, total)))

    assert seen[-1][0] == seen[-1][1] >= FROZEN_NBYTES
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
