"""What somebody really has: files of other kinds, made by the real tools where at hand, are called by name."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch

import tensorkeep
from tensorkeep.errors import HeaderError
from tensorkeep.formats import sniff
from tests.support.formats.reference_files import Plain, reference_file

STATE = {"w": torch.ones(2, 3)}


def torch_zip() -> bytes:
    buffer = io.BytesIO()
    torch.save(STATE, buffer)
    return buffer.getvalue()


def torch_legacy() -> bytes:
    buffer = io.BytesIO()
    torch.save(STATE, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, w=np.ones(3))
    return buffer.getvalue()


def npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ones(3))
    return buffer.getvalue()


def tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("model.safetensors"))
    return buffer.getvalue()


def empty_zip() -> bytes:
    buffer = io.BytesIO()
    zipfile.ZipFile(buffer, "w").close()
    return buffer.getvalue()


def matlab() -> bytes:
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, {"w": np.ones(3)})
    return buffer.getvalue()


def netcdf() -> bytes:
    buffer = io.BytesIO()
    with scipy.io.netcdf_file(buffer, "w") as file:
        file.createDimension("x", 3)
        file.createVariable("w", "f4", ("x",))[:] = 1
        file.flush()
        return buffer.getvalue()


FILES = {
    "Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    "HTML page": b"\n<!DOCTYPE html>\n<html><body>404</body></html>",
    "HTML": b"<html><head><title>Sign in</title></head></html>",
    "XML": b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>',
    "torch.save": torch_zip(),
    "pickle": pickle.dumps({"w": [1, 2, 3]}),
    "older torch.save": torch_legacy(),
    "gzip": gzip.compress(b"x" * 100),
    "bzip2": bz2.compress(b"x" * 100),
    "xz": lzma.compress(b"x" * 100),
    "Zstandard": b"\x28\xb5\x2f\xfd\x04\x00\x19\x00\x00abc",
    "7-Zip": b"7z\xbc\xaf\x27\x1c\x00\x04" + bytes(24),
    "tar": tar(),
    "empty zip": empty_zip(),
    "GGUF": b"GGUF\x03\x00\x00\x00" + bytes(100),
    "numpy.savez": npz(),
    ".npy": npy(),
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(100),
    "JSON": json.dumps({"metadata": {"total_size": 1}, "weight_map": {"w": "a.safetensors"}}).encode(),
    "zero bytes": bytes(4096),
    "MATLAB": matlab(),
    "NetCDF file of the classic format": netcdf(),
    "compressed by zlib": zlib.compress(pickle.dumps([1.5] * 1000)),
    "TensorFlow Lite": b"\x1c\0\0\0TFL3" + bytes(100),
    "frozen graph of TensorFlow": b"\x0a\x12\x0a\x07weights\x12\x05Const" + bytes(100),
    "Core ML": b"\x08\x04\x12\x30\x0a\x10\x0a\x05image" + bytes(100),
    "llama.cpp from before GGUF": b"tjgg\x03\0\0\0" + bytes(100),
    "adapter of llama.cpp": b"algg\x01\0\0\0" + bytes(100),
    "ztensor": b"ZTEN1000" + bytes(100),
    "ORC": b"ORC\x0a\x0b\x0c" + bytes(100),
    "Avro": b"Obj\x01\x04\x16avro.schema" + bytes(100),
    "SQLite": b"SQLite format 3\0" + bytes(100),
    "PNG": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "a text": "Notes über this model: it was trained on a Tuesday.\n".encode() * 20,
    "empty file": b"",
}


@pytest.mark.parametrize("kind", FILES)
def test_the_message_says_what_the_file_is_and_what_to_do(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(FILES[kind])

    with pytest.raises(HeaderError) as caught:
        tensorkeep.open(path)

    text = str(caught.value)
    assert text.startswith("Error while deserializing header: ")
    assert str(path) in text
    assert kind in text
    assert caught.value.hint


@pytest.mark.parametrize("content", [np.random.default_rng(0).normal(size=99).tobytes(), b"\x12\x01" + bytes(106)])
def test_a_file_of_no_known_format_is_called_that(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.weights").write_bytes(content)

    with pytest.raises(HeaderError, match="found a file of no format that tensorkeep reads, which begins with b'"):
        tensorkeep.open(tmp_path / "model.weights")


@pytest.mark.parametrize(
    ("cut", "words"),
    [(5, "the file is 5 bytes short"), (64, "the file is 64 bytes short"), (-3, "3 bytes too many at the end")],
)
def test_a_broken_download_is_called_one(cut: int, words: str, tmp_path: Path) -> None:
    file = reference_file({"w": Plain.counting("F32", 4, 4)})
    path = tmp_path / "model.safetensors"
    path.write_bytes(file[:-cut] if cut > 0 else file + bytes(-cut))

    with pytest.raises(HeaderError, match=words):
        tensorkeep.open(path)


def test_a_header_that_is_cut_off_says_by_how_much(tmp_path: Path) -> None:
    file = reference_file({"w": Plain.counting("F32", 4, 4)})
    path = tmp_path / "model.safetensors"
    path.write_bytes(file[:20])

    with pytest.raises(HeaderError, match=r"invalid header length.*a file that ends 52 bytes before the header does"):
        tensorkeep.open(path)
    path.write_bytes(file[:5])
    with pytest.raises(HeaderError, match=r"header too small.*found 5 bytes\. Was a download or copy interrupted\?"):
        tensorkeep.open(path)


@pytest.mark.parametrize("length", [b"PK\x03\x04", b"GGUF", b"\x1f\x8b", b"{"])
def test_a_length_field_that_looks_like_a_signature_is_still_a_length(length: bytes) -> None:
    head = length.ljust(4, b"\0")[:4] + b"\0\0\0\0" + b'{"a":1}'

    assert sniff(head) is None


def test_a_safetensors_file_is_nothing_else() -> None:
    assert sniff(reference_file({"w": Plain.counting("F32", 4)})) is None
    assert sniff(b"\x10\0\0\0\0\0\0\0 {}") is None
