"""What is this file? Known forms by their first bytes, so that an error can say what somebody really has."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

SNIFF_NBYTES = 512
"""Bytes from the start of a file that `sniff` looks at."""


class Sniffed(msgspec.Struct, frozen=True):
    """What a file seems to be.

    Attributes:
        what: The form in words, with its article.
        hint: What to do with such a file.
    """

    what: str
    hint: str


_CONVERT = "Make a safe checkpoint of it: tensorkeep convert (nothing in it is run)"

_REDOWNLOAD = "Download the file again, and look at what the server answered"

_SIGNATURES: tuple[tuple[bytes, Sniffed], ...] = (
    (
        b"version https://git-lfs",
        Sniffed("a Git LFS pointer, the text that stands for the file", "Fetch the file itself: git lfs pull"),
    ),
    (
        b"PK\x03\x04",
        Sniffed("a zip archive, as torch.save and numpy.savez write", _CONVERT),
    ),
    (b"PK\x05\x06", Sniffed("an empty zip archive", _REDOWNLOAD)),
    (b"GGUF", Sniffed("a GGUF file (llama.cpp)", "Read it with a GGUF reader")),
    (b"\x1f\x8b", Sniffed("a gzip archive", "Unpack it first: gunzip")),
    (b"\x28\xb5\x2f\xfd", Sniffed("a Zstandard archive", "Unpack it first: unzstd")),
    (b"BZh", Sniffed("a bzip2 archive", "Unpack it first: bunzip2")),
    (b"\xfd7zXZ\x00", Sniffed("an xz archive", "Unpack it first: unxz")),
    (b"7z\xbc\xaf\x27\x1c", Sniffed("a 7-Zip archive", "Unpack it first")),
    (b"\x89HDF\r\n\x1a\n", Sniffed("an HDF5 file, as Keras writes", "Convert it with the library that wrote it")),
    (b"\x93NUMPY", Sniffed("a NumPy .npy file", "Open it with numpy.load")),
    (b"{", Sniffed("a JSON text, such as an index or a configuration", "Open the weights file beside it")),
    (b"<?xml", Sniffed("an XML text, such as an object store's error message", _REDOWNLOAD)),
    (b"<!doctype html", Sniffed("an HTML page", _REDOWNLOAD)),
    (b"<html", Sniffed("an HTML page", _REDOWNLOAD)),
)


def sniff(head: bytes) -> Sniffed | None:
    """Say what a file is that is not what it was taken for."""
    if not head:
        return _EMPTY
    if head[6:9] == b"\0\0{":  # a length field and a brace: safetensors after all, whatever its length spells
        return None
    lowered = head.lstrip().lower()
    for signature, sniffed in _SIGNATURES:
        if head.startswith(signature) or lowered.startswith(signature):
            return sniffed
    return next((sniffed for matches, sniffed in _PATTERNS if matches(head)), None)


def _is_pickle(head: bytes) -> bool:
    return head[0] == 0x80 and head[1:2] in {b"\x02", b"\x03", b"\x04", b"\x05"}


_EMPTY = Sniffed("an empty file", _REDOWNLOAD)
_PATTERNS: tuple[tuple[Callable[[bytes], bool], Sniffed], ...] = (
    (lambda head: not any(head), Sniffed("a run of zero bytes (a download that was never filled in)", _REDOWNLOAD)),
    (_is_pickle, Sniffed("a Python pickle, as older torch.save writes", _CONVERT)),
    (lambda head: head[257:262] == b"ustar", Sniffed("a tar archive", "Unpack it first: tar xf")),
)
"""Forms that take more than a prefix to know."""
