"""Superblocks of all versions, and addresses and lengths of other sizes than eight bytes.

`files/superblock-1.h5` was written by h5py 3.14.0 with HDF5 1.14.6, whose `H5Pset_istore_k(…, 3)` asks for version 1.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import tensorkeep
from tests.support.hdf5_oracle import expected, numbers, same

SUPERBLOCK_1 = Path(__file__).parent / "files" / "superblock-1.h5"
PLACE_OF_VERSION = 8
N_MANY = 20
"""Links and attributes that newer files keep in a heap of their own."""


def fill(file: h5py.File) -> None:
    file["plain"] = numbers("<i2", (7,))
    file.create_dataset("group/chunks", data=numbers("<i2", (13, 17)), chunks=(2, 3), compression="gzip")
    file.create_dataset("group/grows", data=numbers("<f4", (40,)), chunks=(3,), maxshape=(90,), fletcher32=True)
    file["soft"] = h5py.SoftLink("/group/chunks")
    file["texts"] = ["a", "é"]
    for number in range(N_MANY):
        file[f"many/{number:02}"] = numbers("<i4", (2,), number)
        file.attrs[f"key {number:02}"] = "m" * number


def check(path: Path) -> None:
    wanted = expected(path)
    with tensorkeep.open(path) as opened:
        many = [f"many/{number:02}" for number in range(N_MANY)]
        assert sorted(opened) == ["group/chunks", "group/grows", *many, "plain", "soft"]
        assert all(same(opened[name].load(), array) for name, array in wanted.items())
        assert same(opened["soft"][::-2, -1], wanted["group/chunks"][::-2, -1])
        assert opened.strings["texts"].load().tolist() == ["a", "é"]
        assert opened.attributes["/"] == {f"key {number:02}": "m" * number for number in range(N_MANY)}
    assert tensorkeep.verify(path).findings == ()


def test_version_1() -> None:
    assert SUPERBLOCK_1.read_bytes()[PLACE_OF_VERSION] == 1
    check(SUPERBLOCK_1)


@pytest.mark.parametrize(("libver", "version"), [("earliest", 0), ("v108", 2), ("v110", 3)])
@pytest.mark.parametrize("sizes", [(4, 4), (4, 8), (8, 4)])
def test_addresses_and_lengths_of_other_sizes(
    sizes: tuple[int, int], libver: str, version: int, tmp_path: Path
) -> None:
    path = tmp_path / "a.h5"
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    bound = {"earliest": h5py.h5f.LIBVER_EARLIEST, "v108": h5py.h5f.LIBVER_V18, "v110": h5py.h5f.LIBVER_V110}[libver]
    access.set_libver_bounds(bound, max(bound, h5py.h5f.LIBVER_V18))
    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_sizes(*sizes)
    with h5py.File(h5py.h5f.create(bytes(path), h5py.h5f.ACC_TRUNC, creation, access)) as file:
        fill(file)

    assert path.read_bytes()[PLACE_OF_VERSION] == version
    check(path)
    damaged = bytearray(path.read_bytes())
    del damaged[-1:]
    with pytest.raises(tensorkeep.errors.FormatError, match="the file is cut off"):
        np.asarray(tensorkeep.open(bytes(damaged)).load())
