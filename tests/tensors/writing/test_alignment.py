"""`align=`: tensors begin at multiples of it where their sizes allow, in files that every reader takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import tensorkeep
from tensorkeep.errors import UnsupportedError

TENSORS = {
    "a.odd": np.arange(5, dtype=np.int64),
    "b.even": np.arange(64, dtype=np.float32),
    "c.odd": np.arange(3, dtype=np.float16),
    "d.even": np.arange(256, dtype=np.uint8),
    "e.page": np.zeros(4096, np.uint8),
    "f.empty": np.zeros((0, 3), np.float64),
}


def addresses(path: Path) -> dict[str, int]:
    """Return where each tensor begins in a file."""
    with tensorkeep.open(path) as file:
        found = {}
        for name, lazy in file.items():
            assert lazy.span is not None
            found[name] = lazy.span.start
        return found


@pytest.mark.parametrize("align", [16, 64, 4096])
@pytest.mark.parametrize("digests", [True, False])
def test_tensors_begin_at_multiples(tmp_path: Path, align: int, digests: bool) -> None:
    path = tmp_path / "x.safetensors"

    tensorkeep.save(TENSORS, path, align=align, digests=digests)

    begins = addresses(path)
    for name, array in TENSORS.items():
        if array.nbytes and array.nbytes % align == 0:
            assert begins[name] % align == 0, name
    loaded = safetensors.numpy.load_file(path)
    assert {name: array.tobytes() for name, array in loaded.items()} == {
        name: array.tobytes() for name, array in TENSORS.items()
    }
    assert list(tensorkeep.load(path)) == list(TENSORS) or not digests
    if digests:
        assert not tensorkeep.verify(path).findings


def test_there_is_nothing_between_tensors(tmp_path: Path) -> None:
    tensorkeep.save(TENSORS, tmp_path / "x.safetensors", align=64)

    with tensorkeep.open(tmp_path / "x.safetensors") as file:
        ranges = sorted(lazy.data_offsets for lazy in file.values())
    assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]


def test_the_default_is_what_the_reference_writes(tmp_path: Path) -> None:
    tensorkeep.save(TENSORS, tmp_path / "x.safetensors", digests=False, align=8)

    assert (tmp_path / "x.safetensors").read_bytes() == safetensors.numpy.save(TENSORS)


@pytest.mark.parametrize("align", [0, 4, 48, 8192, -64, 64.0, "64", True])
def test_other_alignments_are_refused(tmp_path: Path, align: Any) -> None:
    for save in (tensorkeep.save, tensorkeep.save_checkpoint):
        with pytest.raises(UnsupportedError, match=r"power of two from 8 to 4,096 bytes, such as 64"):
            save(TENSORS, tmp_path / "x", align=align)
    assert not (tmp_path / "x").exists()


def test_shards_are_aligned_and_can_be_made_so_later(tmp_path: Path) -> None:
    tensors = {f"layer.{place}": np.full(64, place, np.float32) for place in range(6)} | {"odd": np.zeros(3)}
    tensorkeep.save_checkpoint(tensors, tmp_path / "plain", max_shard_size=600)
    tensorkeep.save_checkpoint(tensors, tmp_path / "aligned", max_shard_size=600, align=64)
    tensorkeep.reshard(tmp_path / "plain", tmp_path / "resharded", max_shard_size=600, align=64)

    for name in ("aligned", "resharded"):
        assert not tensorkeep.verify(tmp_path / name).findings
        for shard in (tmp_path / name).glob("*.safetensors"):
            begins = addresses(shard)
            assert all(begin % 64 == 0 for tensor, begin in begins.items() if tensor != "odd")
        loaded = tensorkeep.load(tmp_path / name)
        assert all(np.array_equal(loaded[tensor], array) for tensor, array in tensors.items())


def test_shards_are_not_taken_from_a_checkpoint_that_is_not_aligned(tmp_path: Path) -> None:
    tensors = {f"layer.{place}": np.full(64, place, np.float32) for place in range(6)}
    tensorkeep.save_checkpoint(tensors, tmp_path / "plain", max_shard_size=600)
    with tensorkeep.open(tmp_path / "plain") as reuse:
        tensorkeep.save_checkpoint(tensors, tmp_path / "aligned", max_shard_size=600, align=64, reuse=reuse)

    for shard in (tmp_path / "aligned").glob("*.safetensors"):
        assert all(begin % 64 == 0 for begin in addresses(shard).values())
