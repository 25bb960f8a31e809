"""HDF5 files that h5py reads because the caller names it."""

from __future__ import annotations

import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import FormatError, UnsupportedError
from tests.support.hdf5_oracle import DTYPES, LIBVERS, expected, fill_group, numbers, same, write


def everything(file: h5py.File) -> None:
    for dtype in DTYPES:
        fill_group(file.create_group(f"of {dtype.replace('<', '').replace('>', 'big ')}"), dtype)


@pytest.mark.parametrize("libver", LIBVERS)
def test_h5py_gives_every_layout_of_every_dtype(libver: str, tmp_path: Path) -> None:
    path = write(tmp_path / "all.h5", everything, libver=libver)
    wanted = expected(path)

    with tensorkeep.open(path, engine="h5py") as opened:
        assert list(opened) == list(wanted)
        assert [name for name, array in opened.load().items() if not same(array, wanted[name])] == []
        assert same(opened["of f4/deflated"][3:9:2, ::-3], wanted["of f4/deflated"][3:9:2, ::-3])


def test_h5py_reads_what_tensorkeep_does_not(tmp_path: Path) -> None:
    array = np.arange(3300, dtype="i4").reshape(100, 33)

    def fill(file: h5py.File) -> None:
        file.create_dataset("szip", data=array, chunks=(30, 10), compression="szip", shuffle=True)
        file["group/bf16"] = np.zeros(3, "V2")
        file["group/bf16"].attrs["dtype"] = "bfloat16"
        file.attrs["text"] = "a text"
        file["away"] = h5py.ExternalLink("other.h5", "/x")

    path = write(tmp_path / "szip.h5", fill)
    with tensorkeep.open(path) as opened:
        assert 'engine="h5py"' in str(opened.unknowns["szip"])
    for target in (path, path.read_bytes()):
        with tensorkeep.open(target, engine="h5py") as opened:
            assert sorted(opened) == ["group/bf16", "szip"]
            assert same(opened["szip"].load(), array)
            assert same(opened["szip"][28:33, 9:12], array[28:33, 9:12])
            assert opened["group/bf16"].dtype == "BF16"
            assert opened.metadata["text"] == "a text"
    tensorkeep.convert(path, tmp_path / "converted", engine="h5py")
    assert same(tensorkeep.load(tmp_path / "converted")["szip"], array)


def test_a_tensor_of_h5py_is_sent_to_other_processes(tmp_path: Path) -> None:
    array = numbers("<f4", (30, 40))
    path = write(tmp_path / "x.h5", lambda file: file.create_dataset("w", data=array, chunks=(7, 7)))
    with tensorkeep.open(path, engine="h5py") as opened:
        assert same(pickle.loads(pickle.dumps(opened["w"]))[5:9], array[5:9])


def test_what_h5py_cannot_read_is_an_error_of_ours(tmp_path: Path) -> None:
    path = write(tmp_path / "x.h5", lambda file: file.create_dataset("w", data=numbers("<f4", (30, 40))))
    content = path.read_bytes()

    for broken in (content[:-3000], content.replace(b"TREE", b"TRFF")):
        with pytest.raises(FormatError, match="h5py cannot read"):
            tensorkeep.open(broken, engine="h5py")["w"].load()
    with pytest.raises(UnsupportedError, match="h5py"):
        tensorkeep.open(path, engine="tensorstore")
