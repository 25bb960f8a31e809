"""NumPy's archives keep the contract of kinds, stored and compressed."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import numpy as np

from tensorkeep.transport import ByteRange
from tests.contracts.kind import Arrays, KindContract


class NpzContract(KindContract):
    def place_of_a_byte(self, span: ByteRange, file: Path) -> int:
        """Return the last byte of the array `bias`: its header, which the checksum covers too, comes first."""
        with zipfile.ZipFile(file) as archive:
            member = archive.getinfo("bias.npy")
        lengths = file.read_bytes()[member.header_offset + 26 :][:4]  # of the name and of what follows it
        start = member.header_offset + 30 + sum(struct.unpack("<2H", lengths))
        return start + member.compress_size - 1


class TestNpz(NpzContract):
    def save(self, arrays: Arrays, directory: Path) -> Path:
        np.savez(directory / "model.npz", allow_pickle=False, **arrays)
        return directory / "model.npz"


class TestCompressedNpz(NpzContract):
    def save(self, arrays: Arrays, directory: Path) -> Path:
        np.savez_compressed(directory / "model.npz", allow_pickle=False, **arrays)
        return directory / "model.npz"


class TestBigEndianNpz(NpzContract):
    def save(self, arrays: Arrays, directory: Path) -> Path:
        swapped = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in arrays.items()}
        np.savez(directory / "model.npz", allow_pickle=False, **swapped)
        return directory / "model.npz"


class TestNpy(KindContract):
    arrays = {"tensor": np.arange(24, dtype=np.float32).reshape(6, 4)}  # noqa: RUF012 - as in the contract
    one = two = "tensor"
    some = "t*"
    has_checksums = False

    def save(self, arrays: Arrays, directory: Path) -> Path:
        np.save(directory / "model.npy", arrays["tensor"])
        return directory / "model.npy"


class TestNpyInFortransOrder(TestNpy):
    def save(self, arrays: Arrays, directory: Path) -> Path:
        np.save(directory / "model.npy", np.asfortranarray(arrays["tensor"]))
        return directory / "model.npy"
