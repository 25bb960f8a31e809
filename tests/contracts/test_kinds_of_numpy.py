"""NumPy's archives keep the contract of kinds, stored and compressed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.contracts.kind import Arrays, KindContract


class TestNpz(KindContract):
    def save(self, arrays: Arrays, directory: Path) -> Path:
        np.savez(directory / "model.npz", allow_pickle=False, **arrays)
        return directory / "model.npz"


class TestCompressedNpz(KindContract):
    def save(self, arrays: Arrays, directory: Path) -> Path:
        np.savez_compressed(directory / "model.npz", allow_pickle=False, **arrays)
        return directory / "model.npz"


class TestBigEndianNpz(KindContract):
    def save(self, arrays: Arrays, directory: Path) -> Path:
        swapped = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in arrays.items()}
        np.savez(directory / "model.npz", allow_pickle=False, **swapped)
        return directory / "model.npz"
