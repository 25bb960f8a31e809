"""Whatever happens to the files of a checkpoint, tensorkeep says so, and names the file and what is wrong with it."""

from __future__ import annotations

import json
import os
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import tensorkeep
from tensorkeep.errors import IndexFileError, IntegrityError, SourceMissingError, TensorkeepError
from tensorkeep.kinds.safetensors import StrayShardWarning
from tests.support.soak import SEED, rounds

N_FLIPS = rounds(300, 100_000)
INDEX = "model.safetensors.index.json"
FIRST, SECOND, THIRD = (f"model-{n:05d}-of-00003.safetensors" for n in (1, 2, 3))


def arrays(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {f"layers.{n}.weight": rng.normal(size=(10, 50)).astype(np.float32) for n in range(9)}


def save(directory: Path, seed: int = 0, **options: Any) -> None:
    tensorkeep.save_checkpoint(arrays(seed), directory, **{"max_shard_size": 6_000} | options)


@pytest.fixture
def ckpt(tmp_path: Path) -> Path:
    directory = tmp_path / "ckpt"
    save(directory)
    assert sorted(os.listdir(directory)) == [FIRST, SECOND, THIRD, INDEX]
    assert tensorkeep.verify(directory).is_whole
    return directory


def data_start(path: Path) -> int:
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


@contextmanager
def flipped(path: Path, place: int, bits: int) -> Iterator[None]:
    """Change one byte for the length of the block."""
    with path.open("r+b", buffering=0) as file:
        file.seek(place)
        (before,) = file.read(1)
        file.seek(place)
        file.write(bytes([before ^ bits]))
        yield
        file.seek(place)
        file.write(bytes([before]))


def refused(directory: Path) -> str:
    """Open what must not open, and return the message."""
    with pytest.raises(TensorkeepError) as caught:
        tensorkeep.open(directory)
    return str(caught.value)


def findings(directory: Path) -> list[str]:
    """Verify what is damaged, and return what is said about it, be it an error or findings."""
    try:
        found = tensorkeep.verify(directory)
    except TensorkeepError as error:
        return [str(error)]
    assert found.is_damaged
    assert not found.is_whole
    return [str(finding) for finding in found.findings if finding.is_damage]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"split_large": True, "max_shard_size": 1_500},
        {"sha256": True},
        {"max_shard_size": "1GB", "sha256": True},
        {"max_shard_size": "1GB"},
    ],
    ids=["shards", "split tensors", "sha256", "one file with an index", "one file"],
)
@pytest.mark.soak
def test_every_changed_byte_is_found_and_named(tmp_path: Path, options: dict[str, Any]) -> None:
    save(tmp_path, **options)
    rng = random.Random(SEED)
    files = sorted(tmp_path.iterdir())
    heads = {path: path.stat().st_size if path.suffix == ".json" else data_start(path) for path in files}
    n_found = {"head": 0, "data": 0}
    for n in range(N_FLIPS // 5):
        path = rng.choice(files)
        in_data = n % 4 == 3 and path.suffix != ".json"
        place = rng.randrange(heads[path], path.stat().st_size) if in_data else rng.randrange(heads[path])
        with flipped(path, place, rng.randrange(1, 256)):
            if in_data:
                tensorkeep.open(tmp_path).close()
            else:
                assert path.name in refused(tmp_path), (path, place)
            said = findings(tmp_path)
            assert any(path.name in text for text in said), (path, place, said)
            if in_data:
                assert any("layers." in text for text in said), said
        n_found["data" if in_data else "head"] += 1
    assert tensorkeep.verify(tmp_path).is_whole
    assert sum(n_found.values()) == N_FLIPS // 5
    assert min(n_found.values()) >= N_FLIPS // 50


def test_a_changed_byte_of_data_is_placed(ckpt: Path) -> None:
    with tensorkeep.open(ckpt) as tensors:
        name = tensors.shards[SECOND].keys() and next(iter(tensors.shards[SECOND]))
    start = data_start(ckpt / SECOND)
    with flipped(ckpt / SECOND, start + 17, 1):
        found = tensorkeep.verify(ckpt)
        (finding,) = found.findings
        chosen = tensorkeep.verify(ckpt, names=[name])
        others = tensorkeep.verify(ckpt, names=[other for other in arrays(0) if other != name])

    assert (finding.kind, finding.shard, finding.tensor) == ("data", SECOND, name)
    assert finding.span == (start, start + 2_000)
    assert chosen.findings == (finding,)
    assert others.findings == ()


@pytest.mark.parametrize("cut", ["one byte", "half", "its header", "all", "all but one", "to its data"])
@pytest.mark.parametrize("name", [FIRST, THIRD, INDEX])
def test_a_truncated_file_is_named(ckpt: Path, name: str, cut: str) -> None:
    path = ckpt / name
    nbytes = path.stat().st_size
    header = 8 if name == INDEX else data_start(path)
    length = {
        "one byte": nbytes - 1,
        "half": nbytes // 2,
        "its header": header - 5,
        "all": 0,
        "all but one": 1,
        "to its data": header,
    }[cut]
    os.truncate(path, length)

    assert name in refused(ckpt)
    assert any(name in text for text in findings(ckpt))
    if name != INDEX:
        assert f"{nbytes - length:,} are missing at the end" in refused(ckpt)


@pytest.mark.parametrize("name", [FIRST, INDEX])
def test_bytes_at_the_end_are_named(ckpt: Path, name: str) -> None:
    with (ckpt / name).open("ab") as file:
        file.write(b"\n")

    assert name in refused(ckpt)
    assert any(name in text for text in findings(ckpt))


def swap(directory: Path) -> None:
    (directory / FIRST).rename(directory / "x")
    (directory / SECOND).rename(directory / FIRST)
    (directory / "x").rename(directory / SECOND)


def take_from(other: Callable[[Path], None], name: str) -> Callable[[Path], None]:
    """Put in a file of another checkpoint, which a function saves."""

    def damage(directory: Path) -> None:
        elsewhere = directory.parent / "elsewhere"
        other(elsewhere)
        shutil.copy(elsewhere / name, directory / name)

    return damage


def save_in_other_order(directory: Path) -> None:
    tensors = dict(reversed(arrays(0).items()))
    tensorkeep.save_checkpoint(tensors, directory, max_shard_size=6_000)


def rewrite_without_seal(directory: Path) -> None:
    tensors = safetensors.numpy.load_file(directory / SECOND)
    safetensors.numpy.save_file(tensors, directory / SECOND, {"format": "pt"})


def edit_index(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        index = json.loads((directory / INDEX).read_text())
        change(index)
        (directory / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")

    return damage


def swap_two_tensors_in_data(directory: Path) -> None:
    start = data_start(directory / FIRST)
    data = bytearray((directory / FIRST).read_bytes())
    data[start : start + 4_000] = data[start + 2_000 : start + 4_000] + data[start : start + 2_000]
    (directory / FIRST).write_bytes(data)


def in_place(name: str, content: bytes) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        (directory / name).write_bytes(content)

    return damage


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"

DAMAGES: dict[str, tuple[Callable[[Path], Any], type[TensorkeepError], list[str]]] = {
    "shards swapped": (
        swap,
        IntegrityError,
        [f"{FIRST}: this is {SECOND}", f"{SECOND}: this is {FIRST}"],
    ),
    "a shard of another save": (
        take_from(lambda path: save(path, seed=1), SECOND),
        IntegrityError,
        [f"{SECOND}: the shard is from another save"],
    ),
    "a shard of the same values in another order": (
        take_from(save_in_other_order, FIRST),
        IntegrityError,
        [f"{FIRST}: this is {THIRD}"],
    ),
    "an index of another save": (
        take_from(lambda path: save(path, seed=1), INDEX),
        IntegrityError,
        [f"{name}: the shard is from another save" for name in (FIRST, SECOND, THIRD)],
    ),
    "a shard missing": (
        lambda path: (path / SECOND).unlink(),
        SourceMissingError,
        [f"{SECOND}: the shard is missing"],
    ),
    "all shards missing": (
        lambda path: [(path / name).unlink() for name in (FIRST, SECOND, THIRD)],
        SourceMissingError,
        [f"{name}: the shard is missing" for name in (FIRST, SECOND, THIRD)],
    ),
    "a shard that is a dangling link": (
        lambda path: [(path / SECOND).unlink(), (path / SECOND).symlink_to("nowhere")],
        SourceMissingError,
        [f"{SECOND}: the shard is missing"],
    ),
    "a shard that is a directory": (
        lambda path: [(path / SECOND).unlink(), (path / SECOND).mkdir()],
        IntegrityError,
        [SECOND],
    ),
    "a shard written by another program": (rewrite_without_seal, IntegrityError, [f"{SECOND}: "]),
    "a Git LFS pointer for a shard": (
        in_place(SECOND, LFS_POINTER),
        IntegrityError,
        [f"{SECOND}: ", "LFS pointer to another"],
    ),
    "a Git LFS pointer for the index": (in_place(INDEX, LFS_POINTER), IndexFileError, [INDEX, "Git LFS"]),
    "an empty index": (in_place(INDEX, b"{}"), IndexFileError, [INDEX, "weight_map"]),
    "a single file beside": (
        lambda path: safetensors.numpy.save_file(arrays(1), path / "model.safetensors"),
        IntegrityError,
        [f"model.safetensors is next to {INDEX}"],
    ),
    "an index without digests": (
        edit_index(lambda index: index["metadata"].pop("tensorkeep")),
        IntegrityError,
        [f"{FIRST}: ", "this index has none", "rewritten by another program"],
    ),
    "an index without metadata": (edit_index(lambda index: index.pop("metadata")), IntegrityError, [f"{FIRST}: "]),
    "a changed index": (
        edit_index(lambda index: index["weight_map"].update({"layers.0.weight": SECOND})),
        IntegrityError,
        [INDEX, "changed after it was written"],
    ),
    "a changed total": (
        edit_index(lambda index: index["metadata"].update(total_size=1)),
        IntegrityError,
        [INDEX, "changed after it was written"],
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_at_open_and_by_verify(ckpt: Path, damage: str) -> None:
    do, error, words = DAMAGES[damage]
    do(ckpt)

    with pytest.raises(error) as caught:
        tensorkeep.open(ckpt)
    for word in words:
        assert word in str(caught.value)
    said = "\n".join(findings(ckpt))
    for word in words:
        assert word in said
    with pytest.raises(error):
        tensorkeep.load(ckpt)


def test_two_tensors_of_equal_shape_swapped_are_found_by_verify(ckpt: Path) -> None:
    swap_two_tensors_in_data(ckpt)

    assert len(findings(ckpt)) == 2


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_a_checkpoint_that_is_not_whole_opens_by_no_backend(ckpt: Path, backend: Any) -> None:
    os.truncate(ckpt / THIRD, 5_000)

    with pytest.raises(IntegrityError, match=THIRD):
        tensorkeep.open(ckpt, backend=backend)
    with pytest.raises(IntegrityError, match=THIRD):
        tensorkeep.open(ckpt, backend=backend, check=False)


OUTSIDE = [
    "../elsewhere/model.safetensors",
    "/etc/passwd",
    "..",
    "a/../../b",
    "C:\\x",
    "..\\x",
    "\\\\host\\x",
    "a\0b",
    "",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_path_that_leaves_the_directory_is_refused(ckpt: Path, path: str) -> None:
    def point_outside(index: dict[str, Any]) -> None:
        del index["metadata"]
        index["weight_map"]["layers.0.weight"] = path

    edit_index(point_outside)(ckpt)

    for check in (True, False):
        with pytest.raises(IndexFileError, match="outside its directory") as caught:
            tensorkeep.open(ckpt, check=check)
        assert INDEX in str(caught.value)


def foreign(directory: Path, weight_map: dict[str, str], files: dict[str, dict[str, np.ndarray]]) -> None:
    """Write a checkpoint as a program without digests does."""
    directory.mkdir()
    for name, tensors in files.items():
        safetensors.numpy.save_file(tensors, directory / name)
    (directory / INDEX).write_text(json.dumps({"metadata": {"total_size": 8}, "weight_map": weight_map}))


def test_a_tensor_in_two_shards_is_named(tmp_path: Path) -> None:
    a, b = np.ones(1, np.float32), np.zeros(1, np.float32)
    directory = tmp_path / "foreign"
    foreign(directory, {"a": FIRST, "b": SECOND}, {FIRST: {"a": a}, SECOND: {"a": b, "b": b}})

    said = refused(directory)
    assert f"{SECOND}: tensor `a` is also in {FIRST}" in said
    assert f"{SECOND}: tensor `a` is also in {FIRST}" in findings(directory)


def test_a_tensor_that_is_promised_and_absent_is_named(tmp_path: Path) -> None:
    a = np.ones(1, np.float32)
    directory = tmp_path / "foreign"
    foreign(directory, {"a": FIRST, "b": SECOND, "c": SECOND}, {FIRST: {"a": a, "b": a}, SECOND: {"d": a}})

    said = refused(directory)
    assert f"{SECOND}: tensor `b` is in the index but not in this file: found it in {FIRST}" in said
    assert f"{SECOND}: tensor `c` is in the index but not in this file" in said
    assert len(findings(directory)) == 2


def test_a_checkpoint_without_digests_opens_and_is_never_called_whole(tmp_path: Path) -> None:
    a = np.ones(1, np.float32)
    directory = tmp_path / "foreign"
    foreign(directory, {"a": FIRST, "b": SECOND}, {FIRST: {"a": a}, SECOND: {"b": a}})

    found = tensorkeep.verify(directory)
    assert tensorkeep.load(directory).keys() == {"a", "b"}
    assert not found.is_damaged
    assert not found.is_whole
    assert found.n_unprotected == 2


def test_the_sha256_of_its_shards_makes_a_checkpoint_of_others_whole(tmp_path: Path) -> None:
    a = np.ones(300, np.float32)
    directory = tmp_path / "foreign"
    foreign(directory, {"a": FIRST, "b": SECOND, "c": THIRD}, {FIRST: {"a": a}, SECOND: {"b": a}, THIRD: {"c": a}})
    nbytes = sum((directory / name).stat().st_size for name in (FIRST, SECOND, THIRD))
    tensorkeep.add_sha256(directory)

    found = tensorkeep.verify(directory)
    assert found.is_whole
    assert (found.n_checked, found.n_unprotected, found.n_sha256, found.nbytes_checked) == (3, 0, 3, nbytes)
    part = tensorkeep.verify(directory, names=["b"])
    assert (part.is_whole, part.n_checked, part.n_sha256) == (True, 1, 1)
    sampled = tensorkeep.verify(directory, sample=0.1, seed=1)
    assert (sampled.is_whole, sampled.n_checked, sampled.n_sha256) == (True, 1, 1)

    with flipped(directory / SECOND, -4 + (directory / SECOND).stat().st_size, 1):
        assert [(each.kind, each.shard) for each in tensorkeep.verify(directory, names=["b"]).findings] == [
            ("sha256", SECOND)
        ]
        assert tensorkeep.verify(directory, names=["a"]).is_whole


def test_a_shard_of_nobody_is_warned_about(ckpt: Path) -> None:
    shutil.copy(ckpt / FIRST, ckpt / "model-00004-of-00005.safetensors")
    shutil.copy(ckpt / FIRST, ckpt / "model-mybackup-00001-of-00002.safetensors")

    with pytest.warns(StrayShardWarning, match="model-00004-of-00005.safetensors") as caught:
        tensors = tensorkeep.load(ckpt)
    assert "mybackup" not in str(caught[0].message)
    assert tensors.keys() == arrays(0).keys()
    found = tensorkeep.verify(ckpt)
    assert found.is_whole
    assert [(finding.kind, finding.shard) for finding in found.findings] == [
        ("stray", "model-00004-of-00005.safetensors")
    ]


@pytest.mark.parametrize("max_shard_size", ["1GB", 6000])
def test_what_only_looks_like_a_part_is_named_by_save_and_verify(tmp_path: Path, max_shard_size: int | str) -> None:
    for name in ("model-00001-of-00007.safetensors", "pytorch_model.bin", "pytorch_model.bin.index.json"):
        (tmp_path / name).write_bytes(b"old")
    (tmp_path / "pytorch_model.fp16.bin").write_bytes(b"of another variant")
    strays = ["model-00001-of-00007.safetensors", "pytorch_model.bin", "pytorch_model.bin.index.json"]

    with pytest.warns(StrayShardWarning, match=f"beside the new checkpoint: {', '.join(strays)}. Move") as caught:
        save(tmp_path, max_shard_size=max_shard_size)

    assert len(caught) == 1
    found = tensorkeep.verify(tmp_path)
    assert found.is_whole
    assert [(finding.kind, finding.shard) for finding in found.findings] == [("stray", name) for name in strays]
    for name in strays:
        (tmp_path / name).unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(tmp_path, max_shard_size=max_shard_size)
    assert tensorkeep.verify(tmp_path).findings == ()


def test_a_checkpoint_that_another_program_changed_on_purpose_opens_without_its_digests(ckpt: Path) -> None:
    edit_index(lambda index: index["metadata"].pop("tensorkeep"))(ckpt)

    with pytest.raises(IntegrityError):
        tensorkeep.load(ckpt)
    assert tensorkeep.load(ckpt, check=False).keys() == arrays(0).keys()


@pytest.mark.parametrize("name", [FIRST, INDEX])
def test_a_save_over_a_damaged_checkpoint_heals_it(ckpt: Path, name: str) -> None:
    os.truncate(ckpt / name, 100)
    save(ckpt, seed=2)

    assert tensorkeep.verify(ckpt).is_whole
    np.testing.assert_array_equal(tensorkeep.load(ckpt)["layers.3.weight"], arrays(2)["layers.3.weight"])
    assert sorted(os.listdir(ckpt)) == [FIRST, SECOND, THIRD, INDEX]
