"""An ellipsis that stands for no dimension still keeps two arrays of positions apart, as in NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorkeep

INDICES = [
    np.s_[0:2, [1, 2], ..., 2],
    np.s_[:2, 1, ..., [0, 1]],
    np.s_[0:2, [1, 2], ..., [0, 3]],
    np.s_[[0, 1], ..., 1, [2, 3]],
    np.s_[..., [0, 1], :, [2, 3]],
    np.s_[0, ..., 1, 2],
]


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_it_keeps_arrays_apart(tmp_path: Path, index: tuple[object, ...], backend: str) -> None:
    array = np.arange(120).reshape(5, 6, 4)
    tensorkeep.save({"w": array}, tmp_path / "m.safetensors")

    found = tensorkeep.open(tmp_path / "m.safetensors", backend=backend)["w"][index]  # type: ignore[arg-type]

    assert np.array_equal(found, array[index])  # type: ignore[index]
