"""What hides code from a scan, and not from those who would load the file."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tensorkeep.formats.archives._tar_members import list_tar
from tensorkeep.formats.pickles.audit._row import begins_like_a_pickle
from tensorkeep.formats.pickles.names._danger_list import danger_of
from tensorkeep.scanner._scan import scan
from tensorkeep.transport import ByteRange, MemorySource


class Payload:
    """Would make a folder."""

    def __reduce__(self) -> Any:
        return os.system, ("exit 1",)


class _StorageInfo:
    def __init__(self, relative_path: str, offset: int, length: int) -> None:
        self.relative_path = relative_path
        self.offset = offset
        self.length = length


PICKLE = pickle.dumps(Payload())
HIDDEN = b"(\x8c\x02os\x8c\x06system\x8c\x01-0\x93\x8c\x06exit 1\x85R.junk"
"""A pickle without a mark, in which a text that is dropped again stands before the name is used."""


def torch_file() -> bytes:
    buffer = io.BytesIO()
    torch.save(torch.ones(2), buffer)
    return buffer.getvalue()


def verdicts(path: Path) -> dict[str, str]:
    return {Path(file.path).name: file.verdict for file in scan(path).files}


def write_metadata(folder: Path, *infos: _StorageInfo) -> None:
    folder.joinpath(".metadata").write_bytes(pickle.dumps(dict(enumerate(infos))))


@pytest.mark.parametrize(
    "spans",
    [
        lambda n, n_all: [(n, n_all - n)],
        lambda n, n_all: [(0, 0)],
        lambda n, n_all: [(0, 1), (1, n_all - 1)],
        lambda n, n_all: [(n, n_all), (0, 1)],
        lambda n, n_all: [(n, n_all - n), (n, n_all - n)],
    ],
    ids=["behind it", "nothing", "through it", "beyond the end", "twice"],
)
def test_metadata_do_not_lead_away_from_a_payload(
    tmp_path: Path, spans: Callable[[int, int], list[tuple[int, int]]]
) -> None:
    content = PICKLE + torch_file()
    tmp_path.joinpath("weights.distcp").write_bytes(content)
    pairs = spans(len(PICKLE), len(content))
    write_metadata(tmp_path, *(_StorageInfo("weights.distcp", *pair) for pair in pairs))

    assert verdicts(tmp_path)["weights.distcp"] == "dangerous"
    assert verdicts(tmp_path / "weights.distcp") == {"weights.distcp": "dangerous"}


def test_metadata_do_not_lead_away_from_what_cannot_be_read(tmp_path: Path) -> None:
    content = gzip.compress(PICKLE)
    tmp_path.joinpath("a").write_bytes(content)
    write_metadata(tmp_path, _StorageInfo("a", 0, 1), _StorageInfo("a", 1, len(content) - 1))

    assert verdicts(tmp_path)["a"] == "unreadable"


def test_bytes_that_metadata_do_not_tell_of_are_reported(tmp_path: Path) -> None:
    content = torch_file()
    tmp_path.joinpath("weights.distcp").write_bytes(content + b"more")
    write_metadata(tmp_path, _StorageInfo("weights.distcp", 0, len(content)))

    (file,) = scan(tmp_path / "weights.distcp").files
    assert any("not declared" in finding.message for finding in file.findings)


def test_metadata_that_hold_themselves_end(tmp_path: Path) -> None:
    info = _StorageInfo("weights.distcp", 0, 3)
    info.itself = {"again": info}  # type: ignore[attr-defined]
    write_metadata(tmp_path, info)

    assert verdicts(tmp_path) == {".metadata": "unknown"}


def test_a_part_has_one_name_whichever_way_it_is_found(tmp_path: Path) -> None:
    tmp_path.joinpath("a.distcp").write_bytes(torch_file() + torch_file())
    n_each = len(torch_file())
    write_metadata(tmp_path, _StorageInfo("a.distcp", 0, n_each), _StorageInfo("a.distcp", n_each, n_each))

    (chosen,) = scan(tmp_path / "a.distcp").files
    assert chosen in scan(tmp_path).files
    assert (chosen.verdict, chosen.n_pickles) == ("clean", 2)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_that_are_compressed_in_another_way(tmp_path: Path, method: int) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("o.npy", array_file("{'descr': '|O', 'fortran_order': False, 'shape': (), }"))

    (file,) = scan(path).files
    assert file.verdict == "unreadable"
    assert "o.npy" in file.findings[0].message


def test_a_member_twice_behind_a_thousand_faults(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive, warnings.catch_warnings(action="ignore"):
        for number in range(1100):
            info = zipfile.ZipInfo(f"a/{number}")
            info.comment = b"a fault"
            archive.writestr(info, b"")
        archive.writestr("a/0", PICKLE)

    assert verdicts(path) == {"a.zip": "dangerous"}


def test_a_compressed_member_that_begins_with_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/b", PICKLE)
    content = path.read_bytes()
    deflated = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = deflated.compress(PICKLE) + deflated.flush()
    assert body in content
    padded = b"\0\0\0\xff\xff" * 20_000 + body  # empty blocks first
    sizes = struct.pack("<2I", len(body), len(PICKLE)), struct.pack("<2I", len(padded), len(PICKLE))
    content = content.replace(body, padded).replace(*sizes)
    end = struct.unpack("<I", content[-6:-2])[0] + len(padded) - len(body)
    path.write_bytes(content[:-6] + struct.pack("<I", end) + content[-2:])
    assert zipfile.ZipFile(path).read("a/b") == PICKLE

    assert verdicts(path) == {"a.zip": "dangerous"}


def header(name: str, kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.USTAR_FORMAT)


def with_checksum(block: bytes) -> bytes:
    rest = block[:148] + b" " * 8 + block[156:512]
    return rest[:148] + b"%06o\0 " % sum(rest) + rest[156:] + block[512:]


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


MEMBER = header("weights.pkl", b"0", len(PICKLE)) + padded(PICKLE)
COMMENT = b"x\n12 size=512\n"
TARS = {
    "an unknown kind": header("weights.pkl", b"Z", len(PICKLE)) + padded(PICKLE),
    "a folder with a size": header("folder", b"5", len(MEMBER)) + MEMBER,
    "a link with a size": header("link", b"1", len(MEMBER)) + MEMBER,
    "an old folder with a size": header("folder/", b"\0", len(MEMBER)) + MEMBER,
    "no mark of the format": with_checksum(MEMBER[:257] + bytes(8) + MEMBER[265:]),
    "no size": with_checksum(header("a", b"0", 0)[:124] + bytes(12) + header("a", b"0", 0)[136:]) + MEMBER,
    "a record in a comment": header("pax", b"x", 25)
    + padded(b"25 comment=" + COMMENT)
    + header("a", b"0", 0)
    + MEMBER,
    "records of Solaris": header("pax", b"X", 9) + padded(b"9 path=a\n") + MEMBER,
}


@pytest.mark.parametrize("case", TARS)
def test_a_tar_archive_is_walked_as_python_does(tmp_path: Path, case: str) -> None:
    path = tmp_path / "model.data"
    path.write_bytes(TARS[case] + bytes(1024))
    with tarfile.open(path) as archive:
        read = [taken.read() for member in archive if not member.islnk() and (taken := archive.extractfile(member))]
    assert PICKLE in read

    assert verdicts(tmp_path) == {"model.data": "dangerous"}


@pytest.mark.parametrize(
    "content",
    [
        MEMBER + b"junk" * 200,
        MEMBER[:512] + PICKLE[:10],
        with_checksum(MEMBER[:124] + b"0x000000012\0" + MEMBER[136:]),
        header("pax", b"x", 12) + padded(b"99 path=a\n") + MEMBER,
        header("pax", b"g", 12) + padded(b"12 size=512\n") + MEMBER,
        header("a", b"S", 0) + bytes(1024),
    ],
    ids=["junk", "cut off", "a size that is not octal", "a broken record", "a size for all", "sparse"],
)
def test_whatever_ends_a_tar_archive_is_a_problem(content: bytes) -> None:
    assert list_tar(MemorySource(content), ByteRange(0, len(content))).problems


def test_too_many_members_of_a_tar_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.nemo"
    path.write_bytes(header("e", b"0", 0) * 100_000 + MEMBER + bytes(1024))

    assert verdicts(path) == {"a.nemo": "unreadable"}


def test_a_zip_behind_a_tar(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a", PICKLE)
    path = tmp_path / "a.nemo"
    path.write_bytes(header("e", b"0", 0) + bytes(1024) + buffer.getvalue())

    assert verdicts(path) == {"a.nemo": "dangerous"}


def array_file(text: str, content: bytes = PICKLE, version: bytes = b"\x01\0") -> bytes:
    header = text.encode() + b"\n"
    length = struct.pack("<H" if version == b"\x01\0" else "<I", len(header))
    return b"\x93NUMPY" + version + length + header + content


DESCRIPTIONS = [
    "'descr': '|O'",
    "'descr' : '|O'",
    "'desc\\x72': '|O'",
    "'des' 'cr': '|O'",
    "'descr': ('|O')",
    "'descr': 'object'",
    "'descr': 'i4,O'",
    "'descr': '''|O'''",
    "'descr':\t'|O'",
    "'descr': '<f4', 'descr': '|O'",
]


@pytest.mark.parametrize("description", DESCRIPTIONS)
@pytest.mark.parametrize("payload", [PICKLE, HIDDEN], ids=["plain", "hidden"])
def test_headers_that_numpy_evaluates(tmp_path: Path, description: str, payload: bytes) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(array_file(f"{{{description}, 'fortran_order': False, 'shape': (), }}", payload))

    assert verdicts(path) == {"a.npy": "dangerous"}


def test_a_header_that_is_longer_than_what_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    text = " " * 70_000 + "{'descr': '|O', 'fortran_order': False, 'shape': (), }"
    path.write_bytes(array_file(text, version=b"\x02\0"))

    assert verdicts(path) == {"a.npy": "dangerous"}


@pytest.mark.parametrize(
    "dtype", ["f4", ">i8", "c16", "?", "U5", "S3", "V7", "M8[ns]", "m8[25s]", "i4,f8", [("a b", "i4", (2, 3))]]
)
def test_numbers_that_look_like_a_pickle_are_none(tmp_path: Path, dtype: Any) -> None:
    array = np.zeros(64, dtype)
    array.view(np.uint8)[: len(PICKLE)] = np.frombuffer(PICKLE, np.uint8)
    np.save(tmp_path / "a.npy", array)

    assert verdicts(tmp_path) == {"a.npy": "clean"}


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, zlib.compress])
def test_what_is_compressed_cannot_be_looked_through(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    content = compress(PICKLE)
    tmp_path.joinpath("model.z").write_bytes(content)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / f"{method}.zip", "w", method) as archive:
            archive.writestr("a/x", content)

    assert verdicts(tmp_path) == dict.fromkeys(("model.z", "0.zip", "8.zip"), "unreadable")


def test_a_pickle_whose_names_are_not_the_last_texts(tmp_path: Path) -> None:
    assert begins_like_a_pickle(HIDDEN, is_whole=True)
    tmp_path.joinpath("weights.dat").write_bytes(HIDDEN)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a/DATA.PKL", HIDDEN)

    assert verdicts(tmp_path) == {"weights.dat": "dangerous", "a.zip": "dangerous"}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_member_that_is_only_named_like_a_pickle(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as archive:
        archive.writestr("a/x.pkl", b"\xff nothing")

    assert verdicts(tmp_path) == {"a.zip": "unreadable"}


def test_a_folder_that_is_not_looked_into_is_told_of(tmp_path: Path) -> None:
    for name in ("here", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "here" / "loop").symlink_to(tmp_path / "here")

    assert verdicts(tmp_path / "here") == {"link": "unreadable"}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"class_name": "Lambda"}).replace("Lambda", r"\u004cambda"),
        " " * 70_000 + json.dumps({"layers": [{"class_name": "Lambda"}]}),
        json.dumps({"module": "my_model", "class_name": "function", "config": "system"}),
        json.dumps({"module": "keras.utils", "class_name": "TorchModuleWrapper"}),
        json.dumps({"module": "keras.layers", "class_name": "TFSMLayer"}),
    ],
)
def test_a_configuration_of_keras_is_read_as_json(tmp_path: Path, text: str) -> None:
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        archive.writestr("config.json", text)

    assert verdicts(tmp_path) == {"model.keras": "unknown"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [("system", "runs commands"), ("mkdir", "changes files"), ("mknod", "changes files"), ("cpu_count", "touches")],
)
def test_reasons_of_os_are_true(name: str, reason: str) -> None:
    danger = danger_of("posix", name)

    assert danger is not None
    assert danger.is_certain
    assert danger.reason.startswith(reason)
