"""What a file is, by its first bytes, so that an error can name what the user really has."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

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

    def instead_of(self, expected: str) -> str:
        """Return the words for an error that begins with what the file is."""
        return f"{self.what}, not {expected}"


_CONVERT = "Convert it to a safe checkpoint: tensorkeep convert (runs nothing in it)"

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

_REDOWNLOAD = "Download the file again and check the server's answer"

JSON_TEXT: Final = Sniffed("a JSON text, such as an index or a configuration", "Open the weights file beside it")

_SIGNATURES: tuple[tuple[bytes, Sniffed], ...] = (
    (
        b"version https://git-lfs",
        Sniffed("a Git LFS pointer to the file", "Fetch the file: git lfs pull"),
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
    (b"\x93NUMPY", Sniffed("a NumPy .npy file", _CONVERT)),
    (b"{", JSON_TEXT),
    (b"<!doctype html", Sniffed("an HTML page", _REDOWNLOAD)),
    (b"<html", Sniffed("an HTML page", _REDOWNLOAD)),
    (b"<!--", Sniffed("an HTML page", _REDOWNLOAD)),
    (b"<?xml", Sniffed("an XML text", _REDOWNLOAD)),
)

_SERVER_ERRORS: Final = (
    re.compile(rb"\s*(?:<\?xml.*?\?>)?\s*<error>.*?<code>(\w{1,64})</code>", re.IGNORECASE | re.DOTALL),
    re.compile(rb'\s*\{\s*"(?:error|message|detail|code)"\s*:.*?"([^"\\]{1,100})"\s*[,}\]]', re.DOTALL),
)
"""Answers of stores and other servers that were saved as if they were the file, with their code or first text."""

_TEXT: Final = re.compile(r"[\t\r\n -~]+")


def sniff(head: bytes) -> Sniffed | None:
    """Return what a file seems to be; None if it is safetensors or unknown."""
    if not head:
        return _EMPTY
    if head[6:9] == b"\0\0{":  # a length field and a brace: safetensors, even if the length spells a signature
        return None
    text = head.removeprefix(_BYTE_ORDER_MARK).lstrip()
    for pattern in _SERVER_ERRORS:
        if error := pattern.match(text):
            return Sniffed(f"a server's error message, {error[1].decode(errors='replace')}", _REDOWNLOAD)
    lowered = text.lower()
    for signature, sniffed in _SIGNATURES:
        if head.startswith(signature) or lowered.startswith(signature):
            return sniffed
    known = next((sniffed for matches, sniffed in _PATTERNS if matches(head)), None)
    return known or _text(head)


def _text(head: bytes) -> Sniffed | None:
    """Recognize a short text, such as "Not Found"."""
    text = head.decode("ascii", errors="replace")
    if len(head) == SNIFF_NBYTES or not _TEXT.fullmatch(text):
        return None
    return Sniffed(f"a text, {text.strip()[:60]!r}", _REDOWNLOAD)


def _is_pickle(head: bytes) -> bool:
    return head[0] == 0x80 and head[1:2] in {b"\x02", b"\x03", b"\x04", b"\x05"}


_EMPTY = Sniffed("an empty file", _REDOWNLOAD)
_PATTERNS: tuple[tuple[Callable[[bytes], bool], Sniffed], ...] = (
    (lambda head: not any(head), Sniffed("nothing but zero bytes (an unfinished download)", _REDOWNLOAD)),
    (_is_pickle, Sniffed("a Python pickle, as older torch.save writes", _CONVERT)),
    (lambda head: head[257:262] == b"ustar", Sniffed("a tar archive", "Unpack it first: tar xf")),
)
"""Forms that a prefix alone does not identify."""
