"""What a file is, by its first bytes, so that an error can name what the user really has."""

from __future__ import annotations

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


_CONVERT = "Convert it to a safe checkpoint: tensorkeep convert (runs nothing in it)"

_REDOWNLOAD = "Download the file again and check the server's answer"

_SIGNATURES: tuple[tuple[bytes, Sniffed], ...] = (
    (
        b"version https://git-lfs",
        Sniffed("a Git LFS pointer, not the file itself", "Fetch the file: git lfs pull"),
    ),
    (
        b"PK\x03\x04",
        Sniffed("a zip archive, as torch.save and numpy.savez write", _CONVERT),
    ),
    (b"PK\x05\x06", Sniffed("an empty zip archive", _REDOWNLOAD)),
    (b"GGUF", Sniffed("a GGUF file (llama.cpp)", _CONVERT)),
    (b"\x1f\x8b", Sniffed("a gzip archive", "Unpack it first: gunzip")),
    (b"\x28\xb5\x2f\xfd", Sniffed("a Zstandard archive", "Unpack it first: unzstd")),
    (b"BZh", Sniffed("a bzip2 archive", "Unpack it first: bunzip2")),
    (b"\xfd7zXZ\x00", Sniffed("an xz archive", "Unpack it first: unxz")),
    (b"7z\xbc\xaf\x27\x1c", Sniffed("a 7-Zip archive", "Unpack it first")),
    (b"\x89HDF\r\n\x1a\n", Sniffed("an HDF5 file, as Keras writes", _CONVERT)),
    (b"\x93NUMPY", Sniffed("a NumPy .npy file", _CONVERT)),
    (b"{", Sniffed("a JSON text, such as an index or a configuration", "Open the weights file beside it")),
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


def _is_pickle(head: bytes) -> bool:
    return head[0] == 0x80 and head[1:2] in {b"\x02", b"\x03", b"\x04", b"\x05"}


_EMPTY = Sniffed("an empty file", _REDOWNLOAD)
_PATTERNS: tuple[tuple[Callable[[bytes], bool], Sniffed], ...] = (
    (lambda head: not any(head), Sniffed("nothing but zero bytes (an unfinished download)", _REDOWNLOAD)),
    (_is_other_xml, Sniffed("an XML text, such as an object store's error message", _REDOWNLOAD)),
    (_is_pickle, Sniffed("a Python pickle, as older torch.save writes", _CONVERT)),
    (lambda head: head[257:262] == b"ustar", Sniffed("a tar archive", "Unpack it first: tar xf")),
)
"""Forms that a prefix alone does not identify."""
