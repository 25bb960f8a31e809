"""Datasets behind HDF5's scale-offset filter are read as h5py reads them, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import FormatError, TensorkeepError
from tests.support.hdf5_oracle import write

INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i2", ">u4", ">i8")
FLOATS = ("f4", "f8", ">f4", ">f8")


def same_bits(array: Any, other: Any) -> bool:
    native = other.dtype.newbyteorder("=")
    return array.dtype == native and array.tobytes() == np.ascontiguousarray(other.astype(native)).tobytes()


def check(path: Path) -> None:
    with h5py.File(path) as file, tensorkeep.open(path) as opened:
        assert list(opened) == sorted(file)
        assert [name for name in file if not same_bits(opened[name].load(), file[name][()])] == []


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype: str, tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    least, width = np.iinfo(dtype).min, 8 * np.dtype(dtype).itemsize

    def fill(file: h5py.File) -> None:
        for n_bits in (0, 3, 5, width):
            for span in (1, 2, 100):
                for fill_value in (None, 7):
                    array = (chance.integers(0, span, (50, 7)) + (least if span == 2 else 5)).astype(dtype)
                    options = {"compression": "gzip", "shuffle": True} if n_bits == 3 else {}
                    name = f"{n_bits} {span} {fill_value}"
                    file.create_dataset(
                        name, data=array, scaleoffset=n_bits, chunks=(9, 4), fillvalue=fill_value, **options
                    )
        part = file.create_dataset("part", (100,), dtype, scaleoffset=0, chunks=(10,), fillvalue=3)
        part[5:25] = np.arange(20)
        file.create_dataset("long", data=(np.arange(140_000) % 100).astype(dtype), scaleoffset=0, chunks=(70_000,))

    check(write(tmp_path / "a.h5", fill))


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_rounded_to_decimals(dtype: str, tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(size=(50, 7)) * 100

    def fill(file: h5py.File) -> None:
        for n_decimals in (1, 3, 6):
            for fill_value in (None, 0.0, 1.5):
                array = numbers.round(n_decimals).astype(dtype)
                name = f"{n_decimals} {fill_value}"
                file.create_dataset(name, data=array, scaleoffset=n_decimals, chunks=(9, 4), fillvalue=fill_value)

    check(write(tmp_path / "a.h5", fill))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_elements_that_need_all_bits_are_read_as_they_were(dtype: str, tmp_path: Path) -> None:
    """HDF5 1.14 writes such chunks and then refuses to read them."""
    limits = np.iinfo(dtype)
    chance = np.random.default_rng(0)
    array = chance.integers(limits.min, limits.max, 1000, np.dtype(dtype).newbyteorder("="), endpoint=True).astype(
        dtype
    )
    array[:2] = limits.min, limits.max
    path = write(tmp_path / "a.h5", lambda file: file.create_dataset("w", data=array, scaleoffset=0, chunks=(1000,)))

    assert same_bits(tensorkeep.load(path)["w"], array)


def test_a_part_reads_its_chunks_only_and_a_conversion_keeps_all(tmp_path: Path) -> None:
    array = np.arange(4000).reshape(100, 40)
    path = write(tmp_path / "a.h5", lambda file: file.create_dataset("w", data=array, scaleoffset=0, chunks=(10, 10)))

    with tensorkeep.open(path) as opened:
        assert np.array_equal(opened["w"][15:22, 8:12], array[15:22, 8:12])
    tensorkeep.convert(path, tmp_path / "a.safetensors")
    assert np.array_equal(tensorkeep.load(tmp_path / "a.safetensors")["w"], array)


def test_damage_is_an_error_and_never_more_than_the_chunk(tmp_path: Path) -> None:
    array = np.arange(1000, dtype="i4")
    path = write(tmp_path / "a.h5", lambda file: file.create_dataset("w", data=array, scaleoffset=0, chunks=(1000,)))
    with h5py.File(path) as file:
        info = file["w"].id.get_chunk_info(0)
        header = file["w"].id.read_direct_chunk((0,))[1][:21]
    content = path.read_bytes()
    start = info.byte_offset
    assert content[start : start + 21] == header

    for n_bits in (33, 31, 2**32 - 1):  # more than the elements have, or than the chunk has
        broken = content[:start] + n_bits.to_bytes(4, "little") + content[start + 4 :]
        with pytest.raises(FormatError, match="does not have the bits"):
            tensorkeep.open(broken)["w"].load()

    values = content.index(np.array([2, 0, 1000, 0, 4, 1], "<u4").tobytes())
    for place, value in ((0, 1), (2, 2**31), (3, 1), (4, 3), (4, 8)):
        at = values + 4 * place
        broken = content[:at] + value.to_bytes(4, "little") + content[at + 4 :]
        with pytest.raises(TensorkeepError, match=r"scaled in a way|another size than its shape"):
            tensorkeep.open(broken)["w"].load()
