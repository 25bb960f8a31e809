"""Datasets with several names are stored once, and a small file cannot make much of a few bytes."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import LimitError
from tests.support.hdf5_oracle import numbers, resummed, write
from tests.support.peak_memory import with_peak

TIES = {
    "again": "plain",
    "group/soft": "plain",
    "packed again": "packed",
    "swapped again": "swapped",
    "late": "empty",
}


def fill(file: h5py.File) -> None:
    file["plain"] = numbers("<f4", (3, 4))
    file["packed"] = file.create_dataset(
        "first", data=numbers("<i4", (100,)), chunks=(10,), compression="gzip", fletcher32=True
    )
    del file["first"]
    file["swapped"] = numbers(">f8", (5,))
    file.create_dataset("empty", shape=(3,), dtype="f4")  # that is, never written
    for name, other in TIES.items():
        file[name] = h5py.SoftLink(f"/{other}") if "soft" in name else file[other]


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_conversion_stores_a_dataset_once(libver: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", fill, libver=libver)

    done = tensorkeep.convert(path, tmp_path / "a.safetensors")

    dataset_of = {name: name for name in TIES.values()} | TIES
    assert done.n_tensors == len(set(dataset_of.values()))
    assert len(done.ties) == len(TIES)
    assert all(dataset_of[name] == dataset_of[other] for name, other in done.ties.items())
    loaded = tensorkeep.load(tmp_path / "a.safetensors")
    assert loaded.keys() == dataset_of.keys()
    with h5py.File(path) as file:
        assert all(np.array_equal(loaded[name], file[name][()]) for name in dataset_of)
    assert tensorkeep.diff(path, tmp_path / "a.safetensors").is_equal


def test_each_chunk_is_checked_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.h5", fill)
    with h5py.File(path) as file:
        chunk = file["packed"].id.get_chunk_info(3)

    assert tensorkeep.verify(path).n_checked == 2
    content = bytearray(path.read_bytes())
    content[chunk.byte_offset + 3] ^= 1
    path.write_bytes(content)

    (finding,) = tensorkeep.verify(path).findings
    assert (finding.kind, finding.tensor) == ("data", "packed")


def with_many_names(path: Path, n_names: int) -> Path:
    def fill(file: h5py.File) -> None:
        file["real"] = np.arange(2**20, dtype="u1")
        for number in range(n_names):
            file[f"name {number}"] = file["real"]

    return write(path, fill)


def with_many_headers(path: Path, n_headers: int) -> Path:
    """Write datasets of different lengths whose elements all begin at one byte."""

    def length_of(number: int) -> int:
        return 2**20 - number

    def fill(file: h5py.File) -> None:
        file["real"] = np.arange(length_of(0), dtype="u1")
        for number in range(1, n_headers):
            file.create_dataset(f"header {number}", shape=(length_of(number),), dtype="u1")

    content = write(path, fill).read_bytes()
    with h5py.File(path) as file:
        start = file["real"].id.get_offset()
    for number in range(1, n_headers):
        nbytes = struct.pack("<Q", length_of(number))
        unwritten = b"\x03\x01" + b"\xff" * 8 + nbytes
        assert content.count(unwritten) == 1
        content = content.replace(unwritten, b"\x03\x01" + struct.pack("<Q", start) + nbytes)
    path.unlink()
    path.write_bytes(content)
    return path


def with_many_chunks(path: Path, n_datasets: int) -> Path:
    """Write datasets of different lengths, each one chunk with a checksum, that all begin at one byte."""

    def fill(file: h5py.File) -> None:
        for number in range(n_datasets):
            shape = (2**20 - number,)
            file.create_dataset(f"chunk {number}", shape, "u1", chunks=shape, fletcher32=True)
        file["chunk 0"][...] = 1

    write(path, fill, libver="v110")
    with h5py.File(path) as file:
        start = file["chunk 0"].id.get_chunk_info(0).byte_offset
    content = path.read_bytes()
    for number in range(1, n_datasets):
        layout = b"\x04\x02\x02\x02\x03" + (2**20 - number).to_bytes(3, "little") + b"\x01\0\0\x01"
        unwritten = layout + bytes(12) + b"\xff" * 8
        assert content.count(unwritten) == 1
        nbytes = 2**20 - number + 4
        content = content.replace(unwritten, layout + struct.pack("<QIQ", nbytes, 0, start))
    path.unlink()
    path.write_bytes(resummed(content))
    return path


def test_many_checksums_of_the_same_bytes_are_not_computed(tmp_path: Path) -> None:
    path = with_many_chunks(tmp_path / "a.h5", 1200)

    assert tensorkeep.verify(path, names=["chunk 0"]).is_whole
    with pytest.raises(LimitError, match=r"many times the size of the file.*Verify fewer"):
        tensorkeep.verify(path)


def test_many_names_of_one_dataset_are_not_copied(tmp_path: Path) -> None:
    path = with_many_names(tmp_path / "a.h5", 1500)

    def convert() -> None:
        assert tensorkeep.convert(path, tmp_path / "a.safetensors").n_tensors == 1
        for copy in (
            tensorkeep.load,
            lambda given: tensorkeep.export(given, tmp_path / "a.npz"),
            lambda given: tensorkeep.reshard(given, tmp_path / "resharded"),
            lambda given: tensorkeep.reshard_for_ranks(given, tmp_path / "ranks", 2),
        ):
            with pytest.raises(LimitError, match="many times the size of the file"):
                copy(path)

    assert with_peak(convert)[1] < 32 * 2**20
    assert (tmp_path / "a.safetensors").stat().st_size < 2 * 2**20
    assert len(tensorkeep.load(path, only=["name 1?"])) == 10


def test_many_datasets_at_one_byte_are_not_copied(tmp_path: Path) -> None:
    path = with_many_headers(tmp_path / "a.h5", 1500)

    for use in (tensorkeep.load, lambda given: tensorkeep.convert(given, tmp_path / "a.safetensors")):
        with pytest.raises(LimitError, match="many times the size of the file"):
            use(path)
    assert tensorkeep.load(path, only=["header 7"])["header 7"].tolist()[:3] == [0, 1, 2]


def test_a_file_that_compresses_well_is_no_bomb(tmp_path: Path) -> None:
    n_elements, n_chunks = 2**20, 120
    packed = zlib.compress(bytes(n_elements))

    def fill(file: h5py.File) -> None:
        for number in range(9):
            shape = (n_elements * n_chunks,)
            written = file.create_dataset(f"{number}", shape, "u1", chunks=(n_elements,), compression="gzip")
            for place in range(n_chunks):
                written.id.write_direct_chunk((place * n_elements,), packed)

    path = write(tmp_path / "a.h5", fill)

    with tensorkeep.open(path) as opened:
        assert opened.nbytes > max(2**30, 500 * path.stat().st_size)
        opened.refuse_expanded(opened)
        assert opened["8"][-1] == 0
