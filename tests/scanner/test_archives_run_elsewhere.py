"""Archives and arrays from which a real reader runs a payload: it does so here, and `scan` never calls them clean."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from torch.package import PackageImporter

from tensorkeep.scanner import scan
from tests.support.formats.archives import zipped

RAN: list[int] = []
OBJECTS = {"dtype": object}


def note() -> int:
    """Record that a payload ran; its name is not in the table of names known to be data."""
    RAN.append(1)
    return 0


class Payload:
    """Runs `note` where it is unpickled."""

    def __reduce__(self) -> Any:
        return note, ()


PICKLE = pickle.dumps(Payload(), 2)

Load = Callable[[Path], object]


def npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def tarred(members: dict[str, bytes], links: tuple[tarfile.TarInfo, ...] = ()) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for link in links:
            archive.addfile(link)
    return buffer.getvalue()


def torch_file(key: str, content: bytes) -> bytes:
    """Return a file of torch with one tensor, whose storage has any name and content."""
    buffer = io.BytesIO()
    torch.save(torch.zeros(len(content), dtype=torch.uint8), buffer)
    with zipfile.ZipFile(buffer) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    text = key.encode()
    members["archive/data.pkl"] = members["archive/data.pkl"].replace(
        b"X\x01\0\0\x000", b"X" + struct.pack("<I", len(text)) + text
    )
    del members["archive/data/0"]
    return zipped({**members, f"archive/data/{key}": content})


def load_twice(path: Path) -> object:
    with path.open("rb") as file:
        np.load(file)
        return np.load(file, allow_pickle=True)


def load_first_of_zip(path: Path) -> object:
    with zipfile.ZipFile(path) as archive:
        return pickle.loads(archive.read(archive.namelist()[0]))


def load_inner_zip(path: Path) -> object:
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(io.BytesIO(archive.read("inner"))) as inner:
        return pickle.loads(inner.read(inner.namelist()[0]))


def load_from_tar(path: Path) -> object:
    with tarfile.open(path) as archive:
        for info in archive:
            file = archive.extractfile(info) if info.isreg() else None
            data = file.read() if file else b""
            if data.startswith(PICKLE[:2]):
                pickle.loads(data)
    return None


def load_by_joblib(path: Path) -> object:
    inner = path.with_name("unpacked")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            inner.write_bytes(archive.read("inner"))
    else:
        with tarfile.open(path) as archive:
            inner.write_bytes(archive.extractfile("inner").read())  # type: ignore[union-attr]
    with warnings.catch_warnings(action="ignore"):
        return joblib.load(inner)


def tar_member(name: str, content: bytes, **fields: bytes) -> bytes:
    """Return a member without the mark of the format, some of whose fields are given as they are."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    block = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    block[257:345] = bytes(88)
    for field, (place, width) in {"size": (124, 12), "kind": (156, 1)}.items():
        if field in fields:
            block[place : place + width] = fields[field].ljust(width, b"\0")
    block[148:156] = b" " * 8
    checksum = fields.get("checksum", b"%b") % f"{sum(block):o}".encode()
    block[148:156] = checksum.ljust(8, b"\0")
    return bytes(block) + content + bytes(-len(content) % 512)


NUMBERS = {"0o": b"0o%b", "a sign": b" +%b", "a tab": b"\t%b", "an underscore": b"0_%b"}
"""Octal numbers as Python reads them."""


def pax_in_the_padding() -> bytes:
    """Return a tar archive whose pax records have no size, but readers take whole blocks for them."""
    record = b"13 size=%04d\n" % len(PICKLE)
    head = tar_member("x", b"c", kind=b"x", size=b"1")
    return head[:512] + record.ljust(512, b"\0") + tar_member("a", b"") + PICKLE.ljust(512, b"\0") + bytes(1024)


def two_directories() -> tuple[bytes, bytes, int, int]:
    """Return two members and a directory of the second, an entry of the first, and where the directory is."""
    content = zipped({"a": PICKLE, "b": b"harmless"})
    size, start = struct.unpack("<2I", content[-10:-2])
    second = content.index(b"PK\1\2", start + 4)
    return content[:start] + content[second : start + size], content[start:second], start, start + size - second


def end(n: int, size: int, start: int, comment: bytes = b"") -> bytes:
    return struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, n, n, size, start, len(comment)) + comment


def wide_end(n: int, size: int, start: int) -> bytes:
    return struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, n, n, size, start)


def locator(place: int) -> bytes:
    return struct.pack("<4sIQI", b"PK\6\7", 0, place, 1)


def a_zip64_directory_of_its_own() -> bytes:
    """The plain end record leads to the harmless member, the zip64 record, which Python prefers, to the other."""
    content, entry, start, size = two_directories()
    place = len(content) + len(entry)
    return content + entry + wide_end(1, len(entry), len(content)) + locator(place) + end(1, size, start)


def a_locator_in_a_comment() -> bytes:
    """Python finds no zip64 record before the locator, and counts back from the end record."""
    content, entry, start, size = two_directories()
    place = len(content)
    entry = entry[:32] + struct.pack("<H", 20) + entry[34:]  # the entry has a comment: the locator
    content += wide_end(1, size, start) + bytes(7) + entry + locator(place)
    return content + end(1, len(entry) + 20, len(content) - len(entry) - 20)


def a_zip64_record_behind_the_end() -> bytes:
    """Torch follows a locator wherever it leads, here into the comment behind the end record."""
    names = ("archive/data.pkl", "archive/version", "archive/DATA.PKL")
    content = zipped(dict(zip(names, (pickle.dumps(1, 2), b"3\n", PICKLE), strict=True)))
    content = content.replace(b"archive/DATA.PKL", b"archive/data.pkl")
    size, start = struct.unpack("<2I", content[-10:-2])
    second = content.index(b"PK\1\2", start + 4)
    third = content.index(b"PK\1\2", second + 4)
    record = wide_end(2, start + size - second, second)
    content = content[:-22] + locator(len(content) + 20)
    return content + end(2, third - start, start, record)


def an_end_record_one_byte_further() -> bytes:
    """Python looks one byte further than the longest comment reaches."""
    content = b"zip" + zipped({"a": PICKLE})
    return zipped({"inner": content[:-2] + b"\xff\xff" + bytes(65_536)})


def a_zip_in_the_padding_of_a_tar() -> bytes:
    """The end record begins in the last member, and ends in what a tar reader skips."""
    content = zipped({"a": PICKLE})
    return tar_member("a", content[:-9])[: 512 + len(content) - 9] + content[-9:]


def zlib_after_empty_blocks(content: bytes) -> bytes:
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = deflater.compress(content) + deflater.flush()
    return b"x\x9c" + b"\0\0\0\xff\xff" * 14_000 + body + struct.pack(">I", zlib.adler32(content))


def zfile(content: bytes) -> bytes:
    return b"ZF" + hex(len(content)).ljust(19).encode() + zlib.compress(content)


def lzma_alone(content: bytes, **options: int) -> bytes:
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": 4096, **options}]
    return lzma.compress(content, lzma.FORMAT_ALONE, filters=filters)


def lzma_tar_after_zeros() -> bytes:
    return bytes(18 * 5000) + lzma_alone(tarred({"a": PICKLE}), lc=0, pb=1, lp=2)


def load_inner_tar(path: Path) -> object:
    with zipfile.ZipFile(path) as archive:
        inner = path.with_name("inner.tar")
        inner.write_bytes(archive.read("inner"))
    return load_from_tar(inner)


LONG = b"harmless " * 10_000
PACKAGE = {
    ".data/extern_modules": b"tests\n",
    ".data/version": b"6\n",
    "m/obj.pkl": b"\x80\x02ccollections\nOrderedDict\n)R.",
    "collections.py": b"from %b import note as OrderedDict" % __name__.encode(),
    ".data/python_version": b"3.11",
}

CASES: dict[str, tuple[bytes, Load]] = {
    **{
        f"a tar whose numbers have {what}": (
            tar_member("a", PICKLE, size=number % f"{len(PICKLE):o}".encode(), checksum=number) + bytes(1024),
            load_from_tar,
        )
        for what, number in NUMBERS.items()
    },
    "pax records in the padding": (pax_in_the_padding(), load_from_tar),
    "two arrays in a file": (npy(np.arange(9)) + npy(np.array([Payload()], **OBJECTS)), load_twice),
    "three arrays in a member": (
        zipped({"inner": npy(np.arange(9)) * 2 + npy(np.array([Payload()], **OBJECTS))}, zipfile.ZIP_DEFLATED),
        lambda path: [np.load(file, allow_pickle=True) for file in [inner_of(path)] for _ in range(3)],
    ),
    "a pickle after an array": (npy(np.arange(9)) + PICKLE, load_twice),
    "an array named like a storage": (
        torch_file("e.npy", npy(np.array([Payload()], **OBJECTS))),
        lambda path: np.load(path, allow_pickle=True)["archive/data/e"],
    ),
    "a pickle as a storage": (
        torch_file("1", PICKLE),
        lambda path: pickle.loads(torch.load(path, weights_only=True).numpy().tobytes()),
    ),
    "a zip64 directory of its own": (a_zip64_directory_of_its_own(), load_first_of_zip),
    "a locator in a comment": (a_locator_in_a_comment(), load_first_of_zip),
    "a zip64 record behind the end": (
        a_zip64_record_behind_the_end(),
        lambda path: torch.load(path, weights_only=False),
    ),
    "an end record one byte further": (an_end_record_one_byte_further(), load_inner_zip),
    "a zip in the padding of a tar": (a_zip_in_the_padding_of_a_tar(), load_first_of_zip),
    "a package with its own collections": (
        zipped({f"p/{name}": content for name, content in PACKAGE.items()}),
        lambda path: PackageImporter(path).load_pickle("m", "obj.pkl"),
    ),
    "a zip at the end of a deflated member": (
        zipped({"inner": bytes(10**6) + zipped({"a": PICKLE})}, zipfile.ZIP_DEFLATED),
        load_inner_zip,
    ),
    "a zip at the end of a deflated array": (
        zipped({"inner": npy(np.zeros(10**6)) + zipped({"a": PICKLE})}, zipfile.ZIP_DEFLATED),
        load_inner_zip,
    ),
    "a tar compressed by LZMA": (zipped({"inner": lzma_alone(tarred({"a": PICKLE}), lc=0, pb=1)}), load_inner_tar),
    "a tar compressed by LZMA behind zeros": (zipped({"inner": lzma_tar_after_zeros()}), load_inner_tar),
    **{
        f"{compress.__name__} in a {outer.__name__} archive": (outer({"inner": compress(PICKLE)}), load_by_joblib)
        for outer in (zipped, tarred)
        for compress in (
            zlib.compress,
            zlib_after_empty_blocks,
            zfile,
            gzip.compress,
            bz2.compress,
            lzma.compress,
            lzma_alone,
        )
    },
}


def inner_of(path: Path) -> io.BytesIO:
    with zipfile.ZipFile(path) as archive:
        return io.BytesIO(archive.read("inner"))


@pytest.mark.parametrize("case", CASES)
def test_what_a_reader_runs_is_not_clean(tmp_path: Path, case: str) -> None:
    content, load = CASES[case]
    path = tmp_path / "weights.any"
    path.write_bytes(content)
    RAN.clear()
    with warnings.catch_warnings(action="ignore"):
        load(path)
    assert RAN

    RAN.clear()
    assert not scan(path).is_clean
    found = scan(tmp_path).files
    assert [file.path for file in found if file.path == str(path) and file.verdict != "clean"]
    assert not RAN
