"""Large chunks, unpacked piece by piece: orbax writes most arrays as one chunk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zstandard

import tensorkeep
from tensorkeep.errors import TensorkeepError
from tensorkeep.tensors.readers import _chunked
from tests.support.formats.orbax_files import write_zarr
from tests.support.peak_memory import with_peak

ARRAY = np.random.default_rng(0).standard_normal((2500, 5000)).astype(np.float32)
"""50 MB, which hardly become fewer."""


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("single") / "step"
    write_zarr(directory, ARRAY, (2500, 5000), zstandard.ZstdCompressor(level=1).compress)
    return directory


def test_a_chunk_that_is_the_whole_array_is_in_memory_once(single: Path, tmp_path: Path) -> None:
    def load() -> bool:
        return bool(np.array_equal(tensorkeep.load(single)["w"][::50], ARRAY[::50]))

    is_equal, nbytes = with_peak(load)
    assert is_equal
    assert nbytes < 1.3 * ARRAY.nbytes

    _, nbytes = with_peak(tensorkeep.convert, single, tmp_path / "w.safetensors")
    assert nbytes < 1.3 * ARRAY.nbytes
    assert np.array_equal(tensorkeep.load(tmp_path / "w.safetensors")["w"], ARRAY)


@pytest.mark.parametrize("threshold", [0, 2**40], ids=["in pieces", "whole"])
def test_slices_are_equal_and_damage_is_found(
    threshold: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_chunked, "_STREAMED_NBYTES", threshold)
    array = ARRAY[:60, :40]
    write_zarr(tmp_path / "step", array, (20, 40), zstandard.ZstdCompressor(level=1).compress)
    with tensorkeep.open(tmp_path / "step") as opened:
        for index in (np.s_[:], np.s_[20:40], np.s_[10:50, ::3], np.s_[[3, 1]], np.s_[59]):
            assert np.array_equal(opened["w"][index], array[index])

    chunk = tmp_path / "step" / "w" / "1.0"
    whole = chunk.read_bytes()
    longer, shorter = (zstandard.ZstdCompressor().compress(bytes(n)) for n in (3201, 3199))
    for damaged in (whole[:-9], whole[:3], b"", b"\xff" + whole, longer, shorter):
        chunk.write_bytes(damaged)
        with tensorkeep.open(tmp_path / "step") as opened, pytest.raises(TensorkeepError) as raised:
            opened["w"].load()
        assert raised.value.tensor == "w"
