"""The real readers: everything that loads a file or a member of an archive, and what is in it, over and over."""

# ruff: noqa: BLE001, S110, SIM115 - it does all that is dangerous

from __future__ import annotations

import _pickle
import bz2
import contextlib
import gzip
import importlib
import importlib.util
import io
import lzma
import os
import pickle
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

__all__ = ["Member", "libraries", "members_of", "readers"]

Reader = Callable[[bytes, str], Any]
"""Loads some bytes, which are also in a file."""

Member = tuple[str, bytes]
"""How a reader gets to some bytes in a file, and the bytes."""

_MOST_PICKLES = 12
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_N_LEGACY_PICKLES = 5
"""Tensors follow these pickles, and no reader takes the tensors for pickles."""

_MOST_MEMBERS = 40
_MOST_NBYTES = 2**23


class _WithIds(_pickle.Unpickler):
    """Takes any persistent id, as the readers of some programs do."""

    def persistent_load(self, _: Any) -> Any:
        return None


class _PythonWithIds(pickle._Unpickler):
    """The same, in Python."""

    def persistent_load(self, _: Any) -> Any:
        return None


def _until_end(load: Callable[[BinaryIO], Any], file: BinaryIO) -> None:
    """Load pickles until the file ends."""
    most = _MOST_PICKLES
    for number in range(_MOST_PICKLES):
        value = load(file)
        if number == 0 and type(value) is int and value == _LEGACY_MAGIC:
            most = _N_LEGACY_PICKLES
        if number + 1 >= most:
            return


def _from_memory(load: Callable[[BinaryIO], Any]) -> Reader:
    return lambda data, _: _until_end(load, io.BytesIO(data))


def _from_file(load: Callable[[BinaryIO], Any], buffering: int) -> Reader:
    def read(_: bytes, path: str) -> None:
        with open(path, "rb", buffering=buffering) as file:
            _until_end(load, file)

    return read


def _python_load(file: BinaryIO) -> Any:
    return pickle._Unpickler(file).load()


def _pickle_readers() -> dict[str, Reader]:
    found: dict[str, Reader] = {"C pickle.loads": lambda data, _: _pickle.loads(data)}
    for name, load in (("C", _pickle.load), ("Python", _python_load)):
        found[f"{name} pickle, memory"] = _from_memory(load)
        found[f"{name} pickle, file"] = _from_file(load, -1)
        found[f"{name} pickle, unbuffered file"] = _from_file(load, 0)
    buffers = [b"buffer"] * 3
    found["C pickle, with ids"] = _from_memory(lambda file: _WithIds(file, encoding="latin1", buffers=buffers).load())
    found["Python pickle, with ids"] = _from_memory(
        lambda file: _PythonWithIds(file, encoding="bytes", buffers=buffers).load()
    )
    found["C pickle, small buffer"] = lambda data, _: _until_end(
        _pickle.load, io.BufferedReader(io.BytesIO(data), 16)
    )
    return found


def _numpy_readers() -> dict[str, Reader]:
    import numpy as np

    def load_all(file: BinaryIO, data: bytes) -> None:
        """Load arrays until the file ends, and every member of an archive."""
        for _ in range(_MOST_PICKLES if data.startswith(b"\x93NUMPY") else 1):
            loaded = np.load(file, allow_pickle=True)
            if isinstance(loaded, np.lib.npyio.NpzFile):
                for name in {*loaded.files, *loaded.zip.namelist()}:
                    with contextlib.suppress(Exception):
                        loaded[name]  # reads it

    def from_file(data: bytes, path: str) -> None:
        with open(path, "rb") as file:
            load_all(file, data)

    return {
        "numpy, memory": lambda data, _: load_all(io.BytesIO(data), data),
        "numpy, file": from_file,
        "numpy, path": lambda _, path: np.load(path, allow_pickle=True, encoding="latin1"),
    }


def _torch_readers() -> dict[str, Reader]:
    import torch

    def package(data: bytes, _: str) -> None:
        if not data.startswith(b"PK") and b"extern_modules" not in data:
            return
        importer = torch.package.PackageImporter(io.BytesIO(data))
        for record in importer.zip_reader.get_all_records():
            folder, _, name = record.rpartition("/")
            with contextlib.suppress(Exception):
                if name.endswith((".pkl", ".pickle", ".pt")):
                    importer.load_pickle(folder.replace("/", "."), name)
                elif name.endswith(".py"):
                    importer.import_module(record[: -len(".py")].replace("/", ".").removesuffix(".__init__"))

    return {
        "torch, memory": lambda data, _: torch.load(io.BytesIO(data), weights_only=False, map_location="cpu"),
        "torch, path": lambda _, path: torch.load(path, weights_only=False, map_location="cpu"),
        "torch.package": package,
    }


def _joblib_readers() -> dict[str, Reader]:
    import joblib

    return {
        "joblib, memory": lambda data, _: joblib.load(io.BytesIO(data)),
        "joblib, path": lambda _, path: joblib.load(path),
    }


_HDF5 = b"\x89HDF\r\n\x1a\n"


def _keras_readers() -> dict[str, Reader]:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    sys.modules.setdefault("tensorflow", None)  # type: ignore[arg-type] # it takes seconds
    import keras

    for width in ("8_sig", "16", "16_le", "16_be", "32", "32_le", "32_be"):  # which json finds in a configuration
        importlib.import_module(f"encodings.utf_{width}")

    def load(data: bytes, path: str) -> None:
        if data.startswith(b"PK") or _HDF5 in data:
            copy = f"{path}.keras" if data.startswith(b"PK") else f"{path}.h5"
            try:
                with open(copy, "wb") as file:
                    file.write(data)
                keras.models.load_model(copy, compile=copy.endswith(".h5"), safe_mode=False)
            finally:
                os.unlink(copy)

    return {"keras": load}


def _paddle_readers() -> dict[str, Reader]:
    import paddle

    return {
        "paddle, memory": lambda data, _: paddle.load(io.BytesIO(data)),
        "paddle, path": lambda _, path: paddle.load(path),
        "paddle, numpy": lambda _, path: paddle.load(path, return_numpy=True),
    }


_LIBRARIES = {
    "torch": _torch_readers,
    "numpy": _numpy_readers,
    "joblib": _joblib_readers,
    "keras": _keras_readers,
    "paddle": _paddle_readers,
}


def libraries() -> list[str]:
    """Return the libraries that are installed here."""
    return [name for name in _LIBRARIES if importlib.util.find_spec(name)]


def readers(names: list[str]) -> dict[str, Reader]:
    """Return all readers of Python, and those of some libraries."""
    found = _pickle_readers()
    for name in names:
        found |= _LIBRARIES[name]()
    return found


def members_of(data: bytes, path: str) -> Iterator[Member]:
    """Yield what `zipfile`, `tarfile` and the modules of compression find in some bytes."""
    for name, find in (("zip", _zip_members), ("tar", _tar_members), ("pressed", _decompressed)):
        number = 0
        try:
            for number, (member, content) in enumerate(find(data, path)):
                if number >= _MOST_MEMBERS:
                    break
                yield f"{name}: {member}", content[:_MOST_NBYTES]
        except Exception:
            pass


def _zip_members(data: bytes, _: str) -> Iterator[Member]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            try:
                with archive.open(info) as member:
                    content = member.read(_MOST_NBYTES)
                yield info.filename, content
            except Exception:
                pass
            with contextlib.suppress(Exception), archive.open(info) as member:
                _until_end(_pickle.load, member)  # this file has `peek`


def _tar_members(data: bytes, path: str) -> Iterator[Member]:
    for mode in ("r:", "r|", "r:*"):
        with contextlib.suppress(tarfile.TarError), tarfile.open(fileobj=io.BytesIO(data), mode=mode) as archive:
            for info in archive:
                content = None
                with contextlib.suppress(Exception):
                    opened = archive.extractfile(info)
                    content = opened.read(_MOST_NBYTES) if opened else None
                if content is not None:
                    yield info.name, content
                if info.issym() or info.islnk():
                    with contextlib.suppress(Exception):
                        _extract(archive, info, os.path.dirname(path))


def _extract(archive: tarfile.TarFile, info: tarfile.TarInfo, folder: str) -> None:
    """Unpack a link as a reader does, and open it."""
    info.name = "unpacked"
    unpacked = os.path.join(folder, info.name)
    try:
        archive.extract(info, folder, filter="fully_trusted")
        with open(unpacked, "rb") as file:
            file.read(1)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(unpacked)


def _decompressed(data: bytes, _: str) -> Iterator[Member]:
    for name, decompress in (
        ("gzip", lambda: gzip.open(io.BytesIO(data))),
        ("bz2", lambda: bz2.open(io.BytesIO(data))),
        ("lzma", lambda: lzma.open(io.BytesIO(data))),
    ):
        content = b""
        with contextlib.suppress(Exception), decompress() as file:
            while more := file.read1(_MOST_NBYTES):
                content += more
                if len(content) > _MOST_NBYTES:
                    break
        if content:
            yield name, content
    with contextlib.suppress(zlib.error):
        yield "zlib", zlib.decompressobj().decompress(data, _MOST_NBYTES)
