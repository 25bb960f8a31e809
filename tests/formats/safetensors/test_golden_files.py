"""Files that the reference wrote, frozen and fresh, are read as they are and written again byte for byte."""

from __future__ import annotations

import hashlib

import pytest

from tensorkeep.dtypes import DTYPES
from tensorkeep.formats.safetensors import Header, emit_header, read_header
from tensorkeep.transport import MemorySource
from tests.support.formats.golden_files import FOLDER, GOLDEN
from tests.support.formats.reference_files import WRITABLE, Plain, reference_file

FROZEN = {
    "every_dtype": "f4cfbb3d09adf92191c3cc20f5c9249e5d30102fef32547c590d0e0a37031b62",
    "no_tensors": "9bbcbf73561f6bc5d0a17ea6a2081feed2d1304e87602d8c502d9a5c4bd85576",
    "metadata": "b250cd004ccd290e6b34bd16f4b5bd0da8b0d8251386c71bdacd8bbb556b4257",
    "metadata_alone": "8a2b904c27683c7e523cb964c999fe80f81082010cd69b7f157a5d98740ce570",
    "shapes": "ace0ed08e6967563de1537fc84f7aa07dab7dd5032d4ffb56c45561805abb6d2",
    "names": "926c679c8b6e80e81a0be13843eebbc8f9bdbd54344a7ab62af429e0082c007a",
}
"""SHA-256 of each golden file."""

BY_NAME = pytest.mark.parametrize("name", GOLDEN)


def tensors_of(file: bytes, header: Header) -> dict[str, Plain]:
    data = file[header.data_start :]
    return {
        name: Plain(entry.dtype, entry.shape, data[slice(*entry.data_offsets)])
        for name, entry in header.entries.items()
    }


def test_golden_files_are_the_frozen_ones() -> None:
    found = {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in FOLDER.iterdir()}

    assert found == FROZEN


@BY_NAME
def test_the_reference_still_writes_them(name: str) -> None:
    tensors, metadata = GOLDEN[name]

    assert reference_file(tensors, metadata) == (FOLDER / f"{name}.safetensors").read_bytes()


@BY_NAME
def test_a_golden_file_is_read_and_written_again(name: str) -> None:
    tensors, metadata = GOLDEN[name]
    file = (FOLDER / f"{name}.safetensors").read_bytes()

    header = read_header(MemorySource(file))

    assert tensors_of(file, header) == tensors
    assert header.metadata == metadata
    assert emit_header(header.entries, header.metadata) == file[: header.data_start]


def test_the_reference_writes_all_dtypes_but_two() -> None:
    assert set(WRITABLE) == {dtype.name for dtype in DTYPES} - {"F6_E2M3", "F6_E3M2"}


@pytest.mark.parametrize("dtype", WRITABLE)
@pytest.mark.parametrize("shape", [(8,), (2, 4), (1, 3, 8), (0, 2)])
def test_a_fresh_file_of_the_reference_is_read(dtype: str, shape: tuple[int, ...]) -> None:
    tensors = {"w": Plain.counting(dtype, *shape), "b": Plain.counting(dtype, 2)}
    file = reference_file(tensors, {"step": "3"})

    header = read_header(MemorySource(file))

    assert tensors_of(file, header) == tensors
    assert header.metadata == {"step": "3"}
    assert emit_header(header.entries, header.metadata) == file[: header.data_start]
