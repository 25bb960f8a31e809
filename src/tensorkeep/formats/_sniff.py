"""What a file is, by its first bytes, so that an error can name what the user really has."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable

import msgspec

SNIFF_NBYTES = 512
"""Bytes at the start of a file that `sniff` needs."""


class Sniffed(msgspec.Struct, frozen=True):
    """What a file seems to be.

    Attributes:
        what: The form, with its article.
        hint: What the user can do.
    """

    what: str
    hint: str

    @property
    def is_read(self) -> bool:
        """Whether tensorkeep reads the form, where it takes every format."""
        return self.hint == _CONVERT


_CONVERT = "Convert it to a safe checkpoint: tensorkeep convert (runs nothing in it)"

_REDOWNLOAD = "Download the file again and check the server's answer"

_OTHER_PROGRAM = "tensorkeep does not read this format: save the arrays in another, such as .npz"

_COMPILED = "Open the model that it was made from"

_NO_WEIGHTS = "Open the file that has the weights"

_NETCDF = Sniffed("a NetCDF file of the classic format", "Make HDF5 of it: nccopy -k nc4")

_OLD_LLAMA = Sniffed(
    "a model of llama.cpp from before GGUF", "Make GGUF of it with convert_llama_ggml_to_gguf.py of llama.cpp"
)

_SIGNATURES: tuple[tuple[bytes, Sniffed], ...] = (
    (
        b"version https://git-lfs",
        Sniffed("a Git LFS pointer, not the file itself", "Fetch the file: git lfs pull"),
    ),
    (
        b"PK\x03\x04",
        Sniffed("a zip archive, as torch.save and numpy.savez write", _CONVERT),
    ),
    (
        b"PK\x05\x06",
        Sniffed("an empty zip archive", "Nothing was saved in it, or the download failed: get the file again"),
    ),
    (b"GGUF", Sniffed("a GGUF file (llama.cpp)", _CONVERT)),
    (b"\x1f\x8b", Sniffed("a gzip archive", "Unpack it first: gunzip")),
    (b"\x28\xb5\x2f\xfd", Sniffed("a Zstandard archive", "Unpack it first: unzstd")),
    (b"BZh", Sniffed("a bzip2 archive", "Unpack it first: bunzip2")),
    (b"\xfd7zXZ\x00", Sniffed("an xz archive", "Unpack it first: unxz")),
    (b"7z\xbc\xaf\x27\x1c", Sniffed("a 7-Zip archive", "Unpack it first")),
    (b"\x89HDF\r\n\x1a\n", Sniffed("an HDF5 file, as Keras writes", _CONVERT)),
    (b"\x93NUMPY", Sniffed("a NumPy .npy file", _CONVERT)),
    (b"{", Sniffed("a JSON text, such as an index or a configuration", _NO_WEIGHTS)),
    (b"MATLAB 5.0 MAT-file", Sniffed("a MATLAB file of version 5", "Save it with -v7.3, which is HDF5, or as .npz")),
    (b"CDF\x01", _NETCDF),
    (b"CDF\x02", _NETCDF),
    (b"CDF\x05", _NETCDF),
    (b"lmgg", _OLD_LLAMA),
    (b"fmgg", _OLD_LLAMA),
    (b"tjgg", _OLD_LLAMA),
    (b"algg", Sniffed("a LoRA adapter of llama.cpp from before GGUF", _OLD_LLAMA.hint)),
    (b"ZTEN", Sniffed("a ztensor file (.zt)", _OTHER_PROGRAM)),
    (b"ORC", Sniffed("an ORC table", _OTHER_PROGRAM)),
    (b"Obj\x01", Sniffed("an Avro file", _OTHER_PROGRAM)),
    (b"SQLite format 3\x00", Sniffed("an SQLite database", _OTHER_PROGRAM)),
    (b"RKNN", Sniffed("a compiled model of Rockchip (.rknn)", _COMPILED)),
    (b"ftrt", Sniffed("a compiled engine of TensorRT", _COMPILED)),
    (b"\x7fELF", Sniffed("a program or a library", "Open the weights, not the program")),
    (b"MZ", Sniffed("a program", "Open the weights, not the program")),
    (b"\x89PNG\r\n", Sniffed("a PNG picture", _NO_WEIGHTS)),
    (b"\xff\xd8\xff", Sniffed("a JPEG picture", _NO_WEIGHTS)),
    (b"%PDF", Sniffed("a PDF document", _NO_WEIGHTS)),
    (b"<!doctype html", Sniffed("an HTML page", _REDOWNLOAD)),
    (b"<html", Sniffed("an HTML page", _REDOWNLOAD)),
)


def sniff(head: bytes) -> Sniffed | None:
    """Return what a file seems to be; None if it is safetensors or unknown."""
    if not head:
        return _EMPTY
    if (
        head[6:9] == b"\0\0{"
    ):  # a length field and a brace: safetensors, even if the length happens to spell a signature
        return None
    lowered = head.lstrip().lower()
    for signature, sniffed in _SIGNATURES:
        if head.startswith(signature) or lowered.startswith(signature):
            return sniffed
    return next((sniffed for matches, sniffed in _PATTERNS if matches(head)), None)


def _is_other_xml(head: bytes) -> bool:
    return head.lstrip().startswith(b"<?xml") and b"<net" not in head  # the root of OpenVINO's models


def _is_frozen_graph(head: bytes) -> bool:
    """Say whether a node of a TensorFlow graph is first: a message of a name and an operator."""
    match = _match_node(head)
    if match is None:
        return False
    name, operator = match.end(), match.end() + head[match.end() - 1]
    after = operator + 2 + int.from_bytes(head[operator + 1 : operator + 2], "little")
    is_text = head[name:operator].isascii() and head[operator + 2 : after].isalnum()
    return is_text and head[operator : operator + 1] == b"\x12" and len(head) >= after > operator + 2


def _is_text(head: bytes) -> bool:
    text = head[: head.rfind(b" ") + 1] or head  # a character may be cut off at the end
    try:
        return all(character.isprintable() or character in "\t\r\n\f" for character in text.decode())
    except UnicodeDecodeError:
        return False


def _is_zlib(head: bytes) -> bool:
    """Say whether the bytes inflate, with the window that every writer uses."""
    if head[:2] not in {b"x\x01", b"x\x5e", b"x\x9c", b"x\xda"}:
        return False
    try:
        return bool(zlib.decompressobj().decompress(head, SNIFF_NBYTES))
    except zlib.error:
        return False


def _is_pickle(head: bytes) -> bool:
    return head[0] == 0x80 and head[1:2] in {b"\x02", b"\x03", b"\x04", b"\x05"}


_match_node = re.compile(rb"\n[\x80-\xff]*[\x01-\x7f]\n[\x01-\xff]").match
_match_core_ml = re.compile(rb"\x08[\x01-\x1f]\x12[\x80-\xff]*[\x01-\x7f]\n").match
"""A version, and a description that begins with a message; where ONNX has a text."""

_EMPTY = Sniffed("an empty file", _REDOWNLOAD)
_PATTERNS: tuple[tuple[Callable[[bytes], bool], Sniffed], ...] = (
    (lambda head: not any(head), Sniffed("nothing but zero bytes (an unfinished download)", _REDOWNLOAD)),
    (_is_other_xml, Sniffed("an XML text, such as an object store's error message", _REDOWNLOAD)),
    (
        _is_zlib,
        Sniffed("a file compressed by zlib, as joblib writes", "Save arrays with numpy.savez, or tensorkeep.save"),
    ),
    (_is_pickle, Sniffed("a Python pickle, as older torch.save writes", _CONVERT)),
    (lambda head: head[257:262] == b"ustar", Sniffed("a tar archive", "Unpack it first: tar xf")),
    (lambda head: head[4:8] == b"TFL3", Sniffed("a TensorFlow Lite model", _COMPILED)),
    (
        lambda head: _match_core_ml(head) is not None,
        Sniffed("a Core ML model (.mlmodel)", _COMPILED),
    ),
    (
        _is_frozen_graph,
        Sniffed("a frozen graph of TensorFlow, whose weights are in its nodes", "Save a SavedModel or a checkpoint"),
    ),
    (_is_text, Sniffed("a text file", _NO_WEIGHTS)),
)
"""Forms that a prefix alone does not identify."""
