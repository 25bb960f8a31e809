"""A file that version 2 of the HDF5 library wrote in its newest form, which older versions refuse to read.

`files/written-by-hdf5-2.h5` was written by h5py 3.16.0 with HDF5 2.0.0 and `libver="latest"`: for each entry of
`SETTINGS` a dataset `numbers("<i2", (13, 17))` of that name, the same behind scale-offset as `scaled`, and
`numbers("<f8", (2, 3, 2))` as pairs in the datatypes `H5T_COMPLEX_IEEE_*`, rounded to their precision. The bytes 0,
1, 2 … are six numbers in each of the datatypes `H5T_FLOAT_*`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import tensorkeep
from tests.support.hdf5_oracle import SETTINGS, numbers, resummed, same

PATH = Path(__file__).parent / "files" / "written-by-hdf5-2.h5"
COMPLEX = {f"complex F{bits}{order}": f"f{bits // 8}" for bits in (16, 32, 64) for order in ("LE", "BE")}
NARROW = {
    "float BFLOAT16LE": "BF16",
    "float BFLOAT16BE": "BF16",
    "float F8E4M3": "F8_E4M3",
    "float F8E5M2": "F8_E5M2",
}


def test_filtered_datasets_are_read_whatever_their_index() -> None:
    array = numbers("<i2", (13, 17))

    with tensorkeep.open(PATH) as opened:
        assert sorted(opened) == sorted({*SETTINGS, "scaled", *COMPLEX, *NARROW})
        assert dict(opened.unknowns) == {}
        for name in (*SETTINGS, "scaled"):
            assert same(opened[name].load(), array), name
            assert same(opened[name][11:2:-4, ..., -3:], array[11:2:-4, ..., -3:]), name
    assert tensorkeep.verify(PATH).findings == ()


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_have_a_datatype_of_their_own(name: str) -> None:
    pairs = numbers("<f8", (2, 3, 2)).astype(COMPLEX[name])

    with tensorkeep.open(PATH, framework="torch") as opened:
        found = opened[name].load()

    assert found.is_complex()
    assert same(torch.view_as_real(found).numpy(), pairs)


@pytest.mark.parametrize("name", NARROW)
def test_numbers_for_machine_learning_have_their_dtypes(name: str) -> None:
    with tensorkeep.open(PATH) as opened:
        assert opened[name].dtype == NARROW[name]
        found = opened[name].load()

    stored = np.arange(6 * found.itemsize, dtype=np.uint8).view(f"{'>' if 'BE' in name else '<'}u{found.itemsize}")
    assert found.view(f"u{found.itemsize}").tolist() == stored.tolist()


def test_a_conversion_keeps_what_safetensors_can_hold(tmp_path: Path) -> None:
    done = tensorkeep.convert(PATH, tmp_path / "a.safetensors", drop=["complex F16*", "complex F64*"])

    kept = [*SETTINGS, "scaled", "complex F32LE", "complex F32BE", *NARROW]
    assert done.n_tensors == len(kept)
    assert tensorkeep.diff(PATH, tmp_path / "a.safetensors", only=kept).is_equal


@pytest.mark.skipif(h5py.version.hdf5_version_tuple < (2, 0), reason="this HDF5 library is older than the file")
def test_the_library_reads_the_same() -> None:
    with h5py.File(PATH) as file, tensorkeep.open(PATH) as opened:
        for name in opened:
            if "F16" not in name and name not in NARROW:  # NumPy has no such numbers
                wanted: Any = np.asarray(file[name][()])
                assert same(opened[name].load(), wanted.astype(wanted.dtype.newbyteorder("=")))


def test_complex_numbers_of_another_form_are_not_read() -> None:
    content = PATH.read_bytes()
    head = bytes((0x5B, 1, 0, 0, 16, 0, 0, 0))
    polar = bytes((0x5B, 3, 0, 0, 16, 0, 0, 0))
    assert content.count(head) == 2
    legacy = tensorkeep.open(resummed(content.replace(head, polar)))

    assert {str(legacy.unknowns[name]) for name in ("complex F64LE", "complex F64BE")} == {
        "complex numbers, made of floating-point numbers"
    }
    assert "complex F32LE" in legacy
