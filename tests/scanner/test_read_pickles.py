"""Pickles that Python's readers run: whatever is odd about them, `scan` does not call them clean."""

from __future__ import annotations

import io
import pickle
import struct
import sys
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.errors import TensorkeepError
from tensorkeep.formats.pickles.audit._row import begins_like_a_pickle
from tensorkeep.formats.pickles.names._danger_list import danger_of
from tensorkeep.scanner._scan import scan
from tests.support.pickles.assembler import global_name, number, storage, stream, tensor, text, tuple_of

SINGS = b"cpicklecanary\nsing\n)R"
"""Calls a function that is on no list."""

EVIL = b"\x80\x02" + SINGS + b"."


class Canary(ModuleType):
    """A module that tells what is taken from it."""

    def __init__(self) -> None:
        super().__init__("picklecanary")
        self.heard: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        self.heard.append(name)
        return lambda *args: None


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was taken from the module that the payloads name."""
    canary = Canary()
    monkeypatch.setitem(sys.modules, "picklecanary", canary)
    assert danger_of("picklecanary", "sing") is None
    canary.heard.clear()
    return canary.heard


def twice(load: Callable[[Any], Any], file: Any) -> None:
    """Load until an error ends it, as a program does that reads until the end of a file."""
    with suppress(Exception):
        load(file)
        load(file)


def in_memory(path: Path) -> None:
    twice(pickle.load, io.BytesIO(path.read_bytes()))


def buffered(path: Path) -> None:
    with open(path, "rb") as file:
        twice(pickle.load, file)


def unbuffered(path: Path) -> None:
    with open(path, "rb", buffering=0) as file:
        twice(pickle.load, file)


def in_python(path: Path) -> None:
    with open(path, "rb") as file:
        twice(lambda file: pickle._Unpickler(file).load(), file)  # type: ignore[attr-defined]


def three_times(path: Path) -> None:
    with open(path, "rb") as file:
        pickle.load(file)
        twice(pickle.load, file)


def with_one_memo(path: Path) -> None:
    with open(path, "rb") as file:
        unpickler = pickle.Unpickler(file)
        unpickler.load()
        unpickler.load()


def with_persistent_ids(path: Path) -> None:
    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> Any:
            return pid

    with open(path, "rb") as file:
        Unpickler(file).load()


def by_torch(path: Path) -> None:
    torch.load(path, weights_only=False)


def frame(content: bytes, nbytes: int | None = None) -> bytes:
    return b"\x95" + struct.pack("<Q", len(content) if nbytes is None else nbytes) + content


def swallowed(content: bytes) -> bytes:
    """Return the start of bytes that contain something, for a reader that begins there."""
    return b"B" + struct.pack("<I", len(content))


MEMO = b"Vpicklecanary\np0\n0Vcollections\np70\n0"
ACROSS = frame(b"g7") + b"0\nVOrderedDict\n\x93)R."
"""Gets 70 from the memo for a reader that reads through the end of the frame, and 0 for one that drops its rest."""


def longer_than_its_pickle(nbytes: int) -> bytes:
    """Return a frame that does not end with STOP, and what readers find after it; in order, it is all bytes."""
    rest = bytes(nbytes - 9) + EVIL
    return b"\x80\x04" + frame(b"N.\x80\x02" + swallowed(rest) + rest, nbytes) + b"."


def legacy_stream() -> bytes:
    """Return a stream of torch whose first frame covers five clean pickles; other ones follow it."""
    magic, version = pickle.dumps(0x1950A86A20F9469CFC6C, 2), pickle.dumps(1001, 2)
    system = pickle.dumps({"protocol_version": 1001, "little_endian": True, "type_sizes": {}}, 2)
    evil = version + system + EVIL + pickle.dumps([], 2)
    n_elements = number(10_000 + len(evil))
    data = storage(n_elements=n_elements, cls=global_name("torch", "ByteStorage"), more=b"N")
    shape, strides = tuple_of(n_elements), tuple_of(number(1))
    clean = stream(tensor(shape, strides, of=data)) + pickle.dumps(["0"], 2)
    covered = magic[2:] + version + system + clean + struct.pack("<q", 10_000 + len(evil)) + bytes(10_000)
    return b"\x80\x04" + frame(covered) + evil


def archive(data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name, content in (("data.pkl", data), ("byteorder", b"little"), ("version", b"3\n")):
            made.writestr(f"model/{name}", content)
    return buffer.getvalue()


FRAMES: dict[str, tuple[bytes, Callable[[Path], None]]] = {
    "a line across its end": (b"\x80\x04" + MEMO + ACROSS, in_memory),
    "a line across the end of a long one": (
        b"\x80\x04" + MEMO + frame(b"N0" * 70_000 + b"g7") + ACROSS[11:],
        buffered,
    ),
    "a text across its end": (
        b"\x80\x04" + frame(b"X\x10\0\0\0abc") + b"d" * 10 + b"0" + swallowed(SINGS) + SINGS + b".",
        in_memory,
    ),
    "one in another": (
        b"\x80\x04" + frame(frame(b"", len(SINGS)) + swallowed(SINGS)) + SINGS + b".",
        unbuffered,
    ),
    "longer than its pickle, in memory": (longer_than_its_pickle(100), in_memory),
    "longer than its pickle, unbuffered": (longer_than_its_pickle(100), unbuffered),
    "longer than its pickle and a buffer": (longer_than_its_pickle(200_000), buffered),
    "longer than its pickle, in Python": (longer_than_its_pickle(100), in_python),
    "longer than the file": (b"\x80\x04" + frame(SINGS + b".", 2**20), in_python),
    "of a stream of torch": (legacy_stream(), by_torch),
    "of an archive of torch": (archive(b"\x80\x04" + MEMO + ACROSS), by_torch),
}


@pytest.mark.parametrize("case", FRAMES)
def test_frames_that_readers_leave_at_different_places(tmp_path: Path, heard: list[str], case: str) -> None:
    data, read = FRAMES[case]
    path = tmp_path / "weights.pt"
    path.write_bytes(data)
    read(path)
    assert heard
    heard.clear()

    assert scan(path).verdict in {"unreadable", "dangerous"}
    for load in (tensorkeep.open, tensorkeep.load):
        with pytest.raises(TensorkeepError):
            load(path)
    assert not heard


END = SINGS + b"."
TEXTS: dict[str, tuple[bytes, Callable[[Path], None]]] = {
    "a space in INT": (b"I 5\n0" + END, buffered),
    "octal as in C": (b"I010\n0" + END, in_memory),
    "a long INT": (b"I" + b"0" * 3_000 + b"1\n0" + END, buffered),
    "a zero byte in LONG": (b"L5\0more\n0" + END, buffered),
    "an underscore in FLOAT": (b"F1_0\n0" + END, in_python),
    "an infinite FLOAT": (b"F1e999\n0" + END, in_python),
    "a zero byte in GET": (b"Va\np0\n0g0\0more\n0" + END, unbuffered),
    "an unknown escape in STRING": (b"S'\\q'\n0" + END, buffered),
    "a long number": (b"\x8b\0\x80\0\0" + bytes(2**15) + b"0" + END, buffered),
    "a key twice": (b"(I1\nI2\nI1\nI3\nd0" + END, buffered),
    "a letter counted": (b"ccollections\nCounter\n(Vab\ntR0" + END, buffered),
    "attributes of an OrderedDict": (b"ccollections\nOrderedDict\n)R(Va\nI1\ndb0" + END, buffered),
    "a buffer that is read only": (b"C\x01a\x980" + END, buffered),
    "a persistent id of text": (b"P5\n0" + END, with_persistent_ids),
    "persistent ids as a name": (b"Ppicklecanary\nPsing\n\x93.", with_persistent_ids),
    "a memo of the pickle before": (b"Vpicklecanary\np0\n.g0\nVsing\n\x93.", with_one_memo),
    "a second pickle": (b"I5\n." + END, buffered),
    "a frame longer than the file": (frame(b"Vpicklecanary\nVsing\n\x93.", 2**20), in_python),
    "a name, then an error": (b"cpicklecanary\nsing\n\xff", buffered),
    "a package, then an error": (b"cpicklecanary.x y\nsing\n", in_python),
    "a name cut after an error": (b"(I1\nI2\nI1\nI3\nd0cpicklecanary\nsing", in_python),
    "a third pickle": (b"NN.N." + END, three_times),
    "a name without its last newline": (b"cpicklecanary\nsing", in_python),
    "a name without a newline": (b"(ipicklecanaryx", in_python),
}


@pytest.mark.parametrize("case", TEXTS)
def test_pickles_of_texts_that_the_machine_refuses(tmp_path: Path, heard: list[str], case: str) -> None:
    data, read = TEXTS[case]
    path = tmp_path / "weights.dat"
    path.write_bytes(data)
    with suppress(Exception):
        read(path)
    assert heard
    heard.clear()
    for method, name in ((zipfile.ZIP_STORED, "stored.zip"), (zipfile.ZIP_DEFLATED, "deflated.zip")):
        with zipfile.ZipFile(tmp_path / name, "w", method) as made:
            made.writestr("model/weights", data)
    with tarfile.open(tmp_path / "weights.tar", "w") as made:
        made.add(path, "storages")

    for name in ("weights.dat", "stored.zip", "deflated.zip", "weights.tar"):
        report = scan(tmp_path / name)
        assert not report.is_clean, name
        assert any("sing" in (finding.name or "") or "canary" in (finding.name or "") for finding in report.findings)
    assert not heard


def test_a_tar_archive_of_torch_with_another_member(tmp_path: Path, heard: list[str]) -> None:
    count = int.from_bytes(b"C\x06", "little")  # six bytes, to a reader of pickles
    data = b"." + swallowed(bytes(count - 6) + EVIL) + bytes(count - 6)
    first = pickle.dumps(1, 2) + stream(tuple_of(text("0"), text("cpu"), global_name("torch", "ByteStorage")))
    members = {name: pickle.dumps(0, 2) for name in ("sys_info", "pickle", "tensors", "more")}
    members["storages"] = first + struct.pack("<q", count) + data + EVIL + b"."
    path = tmp_path / "model.pt"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as made:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    with suppress(Exception):
        by_torch(path)
    assert heard

    assert scan(path).verdict == "unreadable"


def test_a_name_in_a_pickle_that_is_too_long_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorkeep.scanner._scan_pickles.MAX_PICKLE_NBYTES", 1_000)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr("model/weights", swallowed(bytes(5_000)) + bytes(5_000) + b"0" + END)

    assert scan(tmp_path / "a.zip").verdict == "unreadable"


def test_a_name_after_more_opcodes_than_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorkeep.formats.pickles.audit._name_scan.MAX_PICKLE_OPCODES", 1_000)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr("model/weights", b"I 5\n" + b"N0" * 1_000 + END)

    assert scan(tmp_path / "a.zip").verdict == "unreadable"


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u1", "i8"])
def test_numbers_are_hardly_ever_taken_for_pickles(dtype: str) -> None:
    rng = np.random.default_rng(0)
    n_taken = 0
    for size in (8, 64, 1_000):
        for _ in range(3_000):
            numbers = rng.normal(0, 0.02, size) if dtype[0] == "f" else rng.integers(-128, 128, size)
            n_taken += begins_like_a_pickle(numbers.astype(dtype).tobytes(), is_whole=True)

    assert n_taken < 3


@pytest.mark.parametrize(
    "text",
    [
        "class M(Module):\n  __parameters__ = []\n",
        "import os\nimport sys\n",
        "copyright (c) 2024\nall rights reserved\n",
        "c" * 3_000,
        "little",
    ],
)
def test_texts_are_not_taken_for_pickles(text: str) -> None:
    assert not begins_like_a_pickle(text.encode(), is_whole=True)
