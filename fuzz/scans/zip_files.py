"""Archives as programs write them: torch's, torch.package's, NumPy's and Keras'."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import cache
from zipfile import ZipFile

from fuzz.pickle_seeds import files, parts_of
from fuzz.scans.arrays import array
from fuzz.scans.chance import Chance
from fuzz.scans.frames import framed
from fuzz.scans.keras_models import configuration
from fuzz.scans.programs import Program
from fuzz.scans.zips import Member, write_zip

__all__ = ["any_zip", "keras_zip", "npz", "package", "torch_zip"]

_Inner = Callable[[], bytes]
_NAMES = (
    "a",
    "a/b",
    "a/x.pkl",
    "x.npy",
    "data/0",
    "weights.dat",
    "config.json",
    "m.pt",
    "z.npz",
    "a.bin",
    "DATA.PKL",
)
_FOLDERS = ("archive", "archive", "model", "a/b", "data")
_KEYS = ("0", "0", "1", "e.npy", "e", "x.pkl", "n.npz", "data.pkl", "../data.pkl", "0.pt")


def any_zip(chance: Chance, inner: _Inner) -> bytes:
    """Return an archive of any files."""
    names = [chance.choice(_NAMES) for _ in range(chance.choice((1, 1, 2, 3)))]
    return write_zip(chance, [Member(name, inner()) for name in names])


def npz(chance: Chance, inner: _Inner) -> bytes:
    """Return an archive of arrays, and of what takes their place."""
    chance.note("npz")
    members = []
    for number in range(chance.choice((1, 2, 3))):
        data = array(chance, inner) if chance.often(0.8) else inner()
        members.append(Member(chance.choice((f"arr_{number}.npy", f"arr_{number}", "arr_0.npy", "data/0")), data))
    return write_zip(chance, members)


@cache
def _torch_seeds() -> list[list[Member]]:
    """Return the members of archives that torch wrote, without their folder."""
    found = []
    for file in files():
        if file.startswith(b"PK"):
            with ZipFile(io.BytesIO(file)) as archive:
                names = [name for name in archive.namelist() if "/code/" not in name]
                found.append([Member(name.partition("/")[2], archive.read(name), True) for name in names])
    return found


def _storage_pickle(chance: Chance, keys: list[str]) -> list[bytes]:
    """Return a pickle that refers to storages by these keys."""
    program = Program(chance, chance.choice((2, 2, 4)))
    program.add(b"(")
    for key in keys:
        program.add(b"(")
        program.push_text(b"storage")
        program.name(b"torch", chance.choice((b"FloatStorage", b"ByteStorage")))
        program.push_text(key.encode())
        program.push_text(b"cpu")
        program.add(b"K%c" % chance.choice((0, 1, 4)), b"t", b"Q")
        if chance.often(0.1):
            program.value(2)
    program.add(b"l")
    return program.finish()


def torch_zip(chance: Chance, inner: _Inner) -> bytes:
    """Return an archive of `torch.save`: one of torch's with other members, or one from scratch."""
    chance.note("torch zip")
    folder = chance.choice(_FOLDERS)
    if chance.often(0.5):
        members = [member for member in chance.choice(_torch_seeds()) if chance.often(0.98)]
        if chance.often(0.5):
            members.append(Member(chance.choice((*_NAMES, "data/9")), inner(), True))
        for place, member in enumerate(members):
            if member.name == "data.pkl" and len(member.data) < 5_000 and chance.often(0.3):
                members[place] = member._replace(data=framed(chance, parts_of(member.data)))
            elif chance.often(0.15):
                chance.note("storage replaced")
                members[place] = member._replace(data=inner())
    else:
        keys = [chance.choice(_KEYS) for _ in range(chance.choice((1, 1, 2)))]
        pickled = framed(chance, _storage_pickle(chance, keys)) if chance.often(0.7) else inner()
        members = [Member("data.pkl", pickled, True)]
        members += [Member(f"data/{key}", chance.choice((inner, lambda: bytes(16)))(), True) for key in keys]
        members += [Member("version", b"3\n", True), Member("byteorder", b"little", True)]
        if chance.often(0.1):
            members.append(Member("constants.pkl", inner(), True))
    return write_zip(chance, [member._replace(name=f"{folder}/{member.name}") for member in members])


_MODULES = ("collections", "torch", "argparse", "m", "m/__init__", "datetime", "numpy/core/multiarray", "recorder")


def package(chance: Chance, inner: _Inner) -> bytes:
    """Return an archive of torch.package: pickles, sources, and a list of modules to be found elsewhere."""
    chance.note("package")
    extern = "\n".join(name for name in ("torch", "collections", "builtins", "datetime") if chance.often(0.5))
    members = [Member(".data/extern_modules", extern.encode(), True), Member(".data/version", b"6\n", True)]
    members += [Member("version", b"6\n", True), Member("byteorder", b"little", True)]
    for number in range(chance.choice((0, 1, 1, 2))):
        members.append(Member(f"{chance.choice(('m', 'm/x', 'data'))}/{number}.pkl", inner(), True))
    for _ in range(chance.choice((0, 0, 1, 2))):
        suffix = chance.choice((".py", ".py", ".py", ".pyc", ".PY"))
        members.append(Member(chance.choice(_MODULES) + suffix, b"import recorder\nOrderedDict = dict\n", True))
    return write_zip(chance, [member._replace(name=f"p/{member.name}") for member in members])


def keras_zip(chance: Chance, inner: _Inner) -> bytes:
    """Return a model of Keras."""
    chance.note("keras")
    text = json.dumps(configuration(chance)).encode()
    if chance.often(0.2):
        text = chance.choice((
            b"\xef\xbb\xbf" + text,
            text.decode().encode("utf-16"),
            b" " * 70_000 + text,
            text + b" ,",
        ))
    name = chance.choice(("config.json", "config.json", "m/config.json", "CONFIG.JSON"))
    members = [Member("metadata.json", b'{"keras_version": "3.0.0"}'), Member(name, text)]
    members.append(Member(chance.choice(("model.weights.h5", "assets/a.pkl", "model.weights.npz")), inner()))
    return write_zip(chance, members)
