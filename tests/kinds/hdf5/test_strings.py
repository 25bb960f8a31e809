"""Datasets of text are arrays of strings, as h5py and its numpy arrays give them; a conversion leaves them out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import FormatError, LimitError

TEXTS = ["é", "", "a longer text", "b"]


def fill(file: h5py.File) -> None:
    file["w"] = np.ones(3)
    file["alone"] = "a text"
    file["long"] = TEXTS
    file["ascii"] = np.array([b"a", b"bc"], h5py.string_dtype("ascii"))
    file["fixed"] = np.array([[b"ab", b"a\0b"], [b"", b"abc"]])
    file.create_dataset("utf8", data=[text.encode() for text in TEXTS], dtype=h5py.string_dtype(length=16))
    chunked: Any = {"chunks": (3,), "maxshape": (None,), "compression": "gzip"}
    file.create_dataset("chunked", data=TEXTS, **chunked)
    file.create_dataset("fixed chunks", data=np.array([b"x", b"yz", b"", b"abc"]), **chunked)
    file.create_dataset("never written", (2, 2), h5py.string_dtype())
    file.create_dataset("some written", (7,), "S3", chunks=(2,))[3:5] = [b"abc", b"d"]
    file.create_dataset("none", (0,), h5py.string_dtype())


@pytest.fixture(params=["earliest", "latest"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "a.h5", "w", libver=request.param) as file:
        fill(file)
    return tmp_path / "a.h5"


def by_h5py(path: Path) -> dict[str, Any]:
    """Return what h5py reads: texts where the file says UTF-8, else bytes."""
    found: dict[str, Any] = {}
    with h5py.File(path) as file:
        for name, dataset in file.items():
            info = h5py.check_string_dtype(dataset.dtype)
            if info is not None:
                array = np.asarray(dataset[()], object)
                found[name] = np.vectorize(bytes.decode, [object])(array) if info.encoding == "utf-8" else array
    return found


@pytest.mark.parametrize("engine", [None, "h5py"])
def test_strings_are_those_of_h5py(path: Path, engine: str | None) -> None:
    expected = by_h5py(path)

    with tensorkeep.open(path, engine=engine) as opened:
        assert list(opened) == ["w"]
        assert not opened.unknowns
        assert sorted(opened.strings) == sorted(expected)
        for name, array in expected.items():
            found = opened.strings[name].load()
            assert found.shape == array.shape
            assert found.tolist() == array.tolist()


def test_a_conversion_leaves_strings_out_and_says_so(path: Path, tmp_path: Path) -> None:
    conversion = tensorkeep.convert(path, tmp_path / "a.safetensors")

    assert conversion.n_tensors == 1
    assert conversion.left_out["long"] == "4 strings"
    assert conversion.left_out.keys() == by_h5py(path).keys()


def test_broken_texts_are_errors(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("t", data=[b"\xff\xfe"], dtype=h5py.string_dtype(length=2))

    with tensorkeep.open(tmp_path / "a.h5") as opened, pytest.raises(FormatError, match=r"not UTF-8.*a\.h5"):
        opened.strings["t"].load()


def test_strings_that_share_bytes_are_refused_when_they_are_too_many(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["t"] = ["a" * 20_000, *["b"] * 99]
    data = bytearray((tmp_path / "a.h5").read_bytes())
    with h5py.File(tmp_path / "a.h5") as file:
        start = file["t"].id.get_offset()
    for number in range(100):
        data[start + 16 * number : start + 16 * (number + 1)] = data[start : start + 16]
    (tmp_path / "a.h5").write_bytes(data)

    with tensorkeep.open(tmp_path / "a.h5") as opened, pytest.raises(LimitError, match="again and again"):
        opened.strings["t"].load()


def test_a_huge_array_that_was_never_written_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("t", (2**40,), "S8", chunks=(1024,))

    with tensorkeep.open(tmp_path / "a.h5") as opened, pytest.raises(LimitError, match="too large to be unpacked"):
        opened.strings["t"].load()
