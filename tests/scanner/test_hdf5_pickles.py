"""PyTables, and with it pandas, unpickles texts in attributes of HDF5 files: scan looks into them."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import tensorkeep


class Payload:
    def __reduce__(self) -> Any:
        return os.system, ("true",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("place", ["/", "group", "group/data"])
def test_a_pickle_in_an_attribute_is_scanned(protocol: int, place: str, tmp_path: Path) -> None:
    data = pickle.dumps(Payload(), protocol)
    for number, value in enumerate((np.bytes_(data), np.bytes_(data + bytes(9)), np.array([data, b"x"]))):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["group/data"] = np.ones(2)
            file[place].attrs["pandas_type"] = value

        found = tensorkeep.scan(tmp_path / f"{number}.h5")

        assert found.verdict == "dangerous"
        assert any("system" in (finding.name or "") for each in found.files for finding in each.findings)


def test_a_pickle_in_a_text_of_any_length_is_scanned(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["TITLE"] = pickle.dumps(Payload(), 0).decode()

    assert tensorkeep.scan(tmp_path / "a.h5").verdict == "dangerous"


def test_a_dataset_of_pickles_is_reported(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["objects"] = np.ones(2, np.uint8)
        file["objects"].attrs["PSEUDOATOM"] = np.bytes_("object")

    (file,) = tensorkeep.scan(tmp_path / "a.h5").files
    assert [finding.message for finding in file.findings] == ["PyTables unpickles the elements of objects"]


def test_sentences_are_texts(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number, text in enumerate(("This is a sentence.", "Numbers 1.", ".", "I am one.", "(dp0\n.", "N.", "")):
            file.attrs[f"text {number}"] = text
            if text:
                file.attrs[f"bytes {number}"] = np.bytes_(text)

    assert tensorkeep.scan(tmp_path / "a.h5").verdict == "clean"


@pytest.mark.parametrize("name", ["a.h5", "a", "weights.bin"])
@pytest.mark.parametrize("start", [512, 2**16, 2**18])
def test_hdf5_is_found_behind_any_block_of_the_user(name: str, start: int, tmp_path: Path) -> None:
    with h5py.File(tmp_path / name, "w", userblock_size=start) as file:
        file.attrs["TITLE"] = pickle.dumps(Payload(), 0).decode()

    assert tensorkeep.scan(tmp_path).verdict == "dangerous"
