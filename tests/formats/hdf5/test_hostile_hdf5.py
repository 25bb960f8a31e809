"""Broken and hostile HDF5 files: the result is a value or an error of ours, soon and in little memory."""

from __future__ import annotations

import struct
import time
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import FormatError, IntegrityError, LimitError, TensorkeepError
from tensorkeep.formats.hdf5 import Hdf5File
from tensorkeep.transport import MemorySource
from tests.support.hdf5_oracle import numbers, write
from tests.support.peak_memory import with_peak


def small(file: h5py.File) -> None:
    file.attrs["text"] = "a text"
    file["group/plain"] = np.arange(3.0)
    file.create_dataset(
        "chunks", data=np.arange(12, dtype="i2").reshape(3, 4), chunks=(2, 3), compression="gzip", fletcher32=True
    )
    file["soft"] = h5py.SoftLink("group/plain")


def outcome(content: bytes) -> str:
    """Return what reading all of a file gives: a value, or the class of an error."""
    try:
        with tensorkeep.open(content) as opened:
            opened.load()
            _ = opened.metadata, opened.describe(), opened.unknowns
    except TensorkeepError as error:
        return type(error).__name__
    return "value"


@pytest.fixture(params=["earliest", "latest"])
def content(request: pytest.FixtureRequest, tmp_path: Path) -> bytes:
    return write(tmp_path / "small.h5", small, libver=request.param).read_bytes()


def test_a_file_cut_anywhere_is_refused(content: bytes) -> None:
    found = {outcome(content[:stop]) for stop in range(12, len(content), 3 if len(content) > 4000 else 1)}

    assert "value" not in found
    assert found <= {"FormatError", "IntegrityError"}


def test_a_byte_changed_anywhere_gives_a_value_or_an_error(content: bytes) -> None:
    for place in range(len(content)):
        broken = bytearray(content)
        broken[place] = 0xFF if place % 2 else broken[place] ^ 1 << place % 8
        outcome(bytes(broken))


def test_metadata_with_checksums_is_never_read_wrong(tmp_path: Path) -> None:
    content = write(tmp_path / "small.h5", small, libver="latest").read_bytes()
    tree = Hdf5File(MemorySource(content)).tree
    wanted = {name: header.messages for name, header in tree.datasets.items()}

    for place in range(8, len(content)):
        broken = bytearray(content)
        broken[place] ^= 1 << place % 8
        try:
            found = Hdf5File(MemorySource(bytes(broken))).tree
        except TensorkeepError:
            continue
        if not found.unknowns:  # a version that is not known may be damage
            assert {name: header.messages for name, header in found.datasets.items()} == wanted, place


def patched(content: bytes, before: bytes, after: bytes, which: int = 0) -> bytes:
    """Return a file with some bytes replaced."""
    place = -1
    for _ in range(which + 1):
        place = content.index(before, place + 1)
    return content[:place] + after + content[place + len(before) :]


def test_a_tree_that_contains_itself_is_refused(tmp_path: Path) -> None:
    def fill(file: h5py.File) -> None:
        for number in range(500):
            file[f"weight {number:03}"] = 1.0

    content = write(tmp_path / "many.h5", fill).read_bytes()
    root = next(place for place in _places(content, b"TREE") if content[place + 5] == 1)
    child = root + 24 + 8
    for address in (root, struct.unpack_from("<Q", content, child + 16)[0]):
        broken = content[:child] + struct.pack("<Q", address) + content[child + 8 :]
        with pytest.raises(FormatError, match=r"B-tree has a node (twice|at the wrong level)"):
            len(tensorkeep.open(broken))


def _places(content: bytes, signature: bytes) -> list[int]:
    return [place for place in range(len(content)) if content.startswith(signature, place)]


def test_a_header_that_continues_in_itself_is_refused(tmp_path: Path) -> None:
    def fill(file: h5py.File) -> None:
        file["w"] = 1.0
        for number in range(30):
            file["w"].attrs[f"attribute {number}"] = "x" * 50

    content = write(tmp_path / "long.h5", fill).read_bytes()
    with tensorkeep.open(content) as opened:
        assert len(opened.attributes["w"]) == 30
    continuation = next(
        place
        for place in range(0, len(content) - 24, 8)
        if content[place : place + 4] == b"\x10\x00\x10\x00" and struct.unpack_from("<Q", content, place + 8)[0]
    )
    start, nbytes = struct.unpack_from("<QQ", content, continuation + 8)
    inner = (
        content.index(b"\x10\x00\x10\x00", start) if b"\x10\x00\x10\x00" in content[start : start + nbytes] else None
    )
    place = inner or continuation
    broken = content[: place + 8] + struct.pack("<QQ", start, nbytes) + content[place + 24 :]
    if inner is not None:
        with pytest.raises(FormatError, match="continues in itself"):
            len(tensorkeep.open(broken))
    assert outcome(broken) in {"value", "FormatError"}


def chunk_file(path: Path, chunk: bytes, **settings: Any) -> Path:
    """Write a dataset of 1,000 bytes in one chunk, whose bytes in the file are given."""
    mask = settings.pop("mask", 0)
    with h5py.File(path, "w") as file:
        data = file.create_dataset("w", shape=(1000,), dtype="u1", chunks=(1000,), **settings)
        data.id.write_direct_chunk((0,), chunk, mask)
    return path


@pytest.mark.parametrize(
    ("chunk", "settings", "message"),
    [
        (zlib.compress(bytes(10**6)), {"compression": "gzip"}, "inflates to more"),
        (zlib.compress(bytes(999)), {"compression": "gzip"}, "another size"),
        (zlib.compress(bytes(1000))[:-5], {"compression": "gzip"}, "ends before"),
        (b"no deflated data", {"compression": "gzip"}, "cannot be inflated"),
        (b"\0\0" + b"\xe0\xff\0" * 3 + b"\xe0\xc6\0", {"compression": "lzf"}, None),
        (b"\0\0" + b"\xe0\xff\0" * 4, {"compression": "lzf"}, "decompresses to more"),
        (b"\0\0" + b"\xe0\xff\0" * 400_000, {"compression": "lzf"}, "decompresses to more"),
        (b"\0\0" + b"\xe0\xff\0" * 3, {"compression": "lzf"}, "another size"),
        (b"\x09" + bytes(10) + b"\xe0\xff", {"compression": "lzf"}, "ends before"),
        (b"\x09" + bytes(10) + b"\xe0", {"compression": "lzf"}, "ends before"),
        (b"\x09" + bytes(10) + b"\x1f\0", {"compression": "lzf"}, "ends before"),
        (b"\x09" + bytes(10) + b"\x20\x0a", {"compression": "lzf"}, "from before its start"),
        (bytes(1004), {"fletcher32": True}, None),
        (bytes(1003) + b"\1", {"fletcher32": True}, "does not match its checksum"),
        (bytes(2), {"fletcher32": True}, "another size"),
        (bytes(999), {}, "another size"),
        (bytes(1001), {}, "another size"),
        (bytes(1000), {"compression": "gzip", "mask": 1}, None),
        (bytes(1004), {"compression": "gzip", "fletcher32": True, "mask": 1}, None),
    ],
)
def test_a_chunk_has_the_size_of_its_shape(
    chunk: bytes, settings: dict[str, Any], message: str | None, tmp_path: Path
) -> None:
    path = chunk_file(tmp_path / "chunk.h5", chunk, **settings)
    with tensorkeep.open(path) as opened:
        if message is None:
            assert opened["w"].load().tobytes() == bytes(1000)
            return
        with pytest.raises((FormatError, IntegrityError), match=message) as caught:
            opened["w"].load()
    assert "w" in str(caught.value) or caught.value.tensor == "w"


def test_chunks_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    array = numbers("<i4", (2000,))
    path = write(tmp_path / "a.h5", lambda file: file.create_dataset("w", data=array, chunks=(1000,)))
    with h5py.File(path) as file:
        first, second = (file["w"].id.get_chunk_info(place).byte_offset for place in (0, 1))
    content = path.read_bytes()
    broken = patched(content, struct.pack("<Q", second), struct.pack("<Q", first))
    with tensorkeep.open(broken) as opened, pytest.raises(FormatError, match="overlap"):
        opened["w"].load()


def test_a_small_file_of_zeros_without_end_takes_no_memory(tmp_path: Path) -> None:
    def fill(file: h5py.File) -> None:
        file.create_dataset("nothing", shape=(2**50,), dtype="f8")
        file.create_dataset("little", shape=(2**45, 3), dtype="f4", chunks=(2**20, 3), compression="gzip")
        file["little"][:5] = 1

    path = write(tmp_path / "zeros.h5", fill)

    def read() -> None:
        with tensorkeep.open(path) as opened:
            for name in opened:
                assert not opened[name][-1].any()
                with pytest.raises(LimitError):
                    opened[name].load()

    assert with_peak(read)[1] < 64 * 2**20


def test_equal_elements_behind_the_scale_offset_filter_are_not_stored_without_end(tmp_path: Path) -> None:
    """A chunk of them takes 21 bytes, however large it is."""
    nothing = bytes(21)

    def fill(file: h5py.File) -> None:
        for name, n_elements, n_chunks in (("small", 2**20, 10), ("large", 2**32 - 1, 3), ("many", 2**29, 12)):
            shape = (n_elements * n_chunks,)
            written = file.create_dataset(name, shape, "u1", chunks=(n_elements,), scaleoffset=0, fillvalue=7)
            for place in range(n_chunks):
                written.id.write_direct_chunk((place * n_elements,), nothing)

    path = write(tmp_path / "equal.h5", fill)

    def read() -> None:
        with tensorkeep.open(path) as opened:
            assert (opened["small"].load() == 7).all()
            for name in ("large", "many"):
                for part in (slice(-1, None), slice(None)):
                    with pytest.raises(LimitError, match=r"far larger than their bytes in the file.*from \d+"):
                        _ = opened[name][part]
        with pytest.raises(LimitError):
            tensorkeep.convert(path, tmp_path / "converted")

    assert path.stat().st_size < 2**14
    assert with_peak(read)[1] < 64 * 2**20
    assert not (tmp_path / "converted").exists()


def test_a_chunk_behind_the_scale_offset_filter_is_in_memory_once(tmp_path: Path) -> None:
    array = np.arange(2**22, dtype="i8") % 1000
    path = write(
        tmp_path / "a.h5", lambda file: file.create_dataset("w", data=array, chunks=array.shape, scaleoffset=0)
    )

    def read() -> None:
        with tensorkeep.open(path) as opened:
            assert opened["w"][-1] == array[-1]

    read()
    assert with_peak(read)[1] < 1.5 * array.nbytes


def test_groups_within_groups_end_at_no_recursion_limit(tmp_path: Path) -> None:
    path = write(tmp_path / "deep.h5", lambda file: file.create_dataset("/".join("g" * 3000), data=[1.0]))

    with tensorkeep.open(path) as opened:
        assert len(next(iter(opened))) == 2 * 3000 - 1


def test_groups_that_share_one_list_of_links_end_soon(tmp_path: Path) -> None:
    """Each of 300 groups has the tree of a large one, so that a few hundred kilobytes name 600,000 datasets."""

    def fill(file: h5py.File) -> None:
        for number in range(2000):
            file[f"large/weight {number}"] = np.float32(number)
        for number in range(300):
            file.create_group(f"group {number:03}")

    path = write(tmp_path / "shared.h5", fill)
    content = path.read_bytes()
    with h5py.File(path) as file:
        places = [h5py.h5o.get_info(file[name].id).addr for name in file]
    tables = {place: content.index(b"\x11\x00\x10\x00", place) + 8 for place in places}
    large = tables.pop(places[-1])
    broken = bytearray(content)
    for place in tables.values():
        broken[place : place + 16] = content[large : large + 16]

    begin = time.process_time()
    assert outcome(bytes(broken)) in {"value", "LimitError", "FormatError"}
    assert time.process_time() - begin < 30


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_damaged_bytes_are_named_by_their_dataset(libver: str, tmp_path: Path) -> None:
    def fill(file: h5py.File) -> None:
        for name in ("a", "b"):
            file.create_dataset(name, data=numbers("<f4", (50, 50)), chunks=(20, 20), fletcher32=True)

    path = write(tmp_path / "x.h5", fill, libver=libver)
    assert tensorkeep.verify(path).n_checked == 2
    with h5py.File(path) as file:
        place = file["b"].id.get_chunk_info(4).byte_offset
    content = bytearray(path.read_bytes())
    content[place + 100] ^= 4
    path.write_bytes(content)

    findings = tensorkeep.verify(path).findings
    assert [(finding.kind, finding.tensor) for finding in findings] == [("data", "b")]
    with tensorkeep.open(path) as opened:
        opened["a"].load()
        with pytest.raises(IntegrityError, match="checksum"):
            opened["b"].load()


def test_not_hdf5_says_so() -> None:
    with pytest.raises(FormatError, match="not an HDF5 file"):
        Hdf5File(MemorySource(bytes(10_000)))


def test_texts_in_attributes_that_are_all_one_and_the_same_take_no_memory(tmp_path: Path) -> None:
    n_texts, long = 3_000, b"a" * 100_000 + b"."
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["w"] = np.ones(3, np.float32)
        texts = [long, *[b"xyz"] * (n_texts - 1)]
        file["w"].attrs.create("texts", texts, dtype=h5py.string_dtype("ascii"))
    content = (tmp_path / "a.h5").read_bytes()
    reference, other = (len(text).to_bytes(4, "little") for text in (long, b"xyz"))
    start = next(
        at
        for at in range(len(content))
        if content[at : at + 20 : 16] == reference[:1] + other[:1]
        and content[at : at + 4] == reference
        and content[at + 16 : at + 20] == other
    )
    same = content[start : start + 16] * n_texts
    (tmp_path / "b.h5").write_bytes(content[:start] + same + content[start + len(same) :])

    with h5py.File(tmp_path / "b.h5") as file:
        assert [len(text) for text in file["w"].attrs["texts"]] == [len(long)] * n_texts
    with pytest.raises(LimitError, match="the same bytes again and again"):
        _ = tensorkeep.open(tmp_path / "b.h5").metadata
    assert tensorkeep.scan(tmp_path / "b.h5").verdict == "unreadable"
