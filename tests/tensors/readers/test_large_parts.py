"""Parts of a mapped file that are large enough to be copied by two threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorkeep


@pytest.mark.parametrize(
    "index",
    [np.s_[:], np.s_[:, 1:], np.s_[::-1, ::2], np.s_[1:], np.s_[..., 100:], np.s_[0], np.s_[:1], np.s_[[5, 3, 700]]],
    ids=str,
)
def test_they_are_what_numpy_says(tmp_path: Path, index: object) -> None:
    array = np.random.default_rng(0).integers(0, 2**31, (1001, 3001)).astype(np.int32)
    tensorkeep.save({"w": array}, tmp_path / "m.safetensors", durable=False)
    expected = array[index]  # type: ignore[index]

    found = tensorkeep.open(tmp_path / "m.safetensors", backend="mmap")["w"][index]

    assert np.array_equal(found, expected)
    assert found.flags.c_contiguous
