"""The record of a fetch: of which version each file is, and which of its bytes are on the disk. Pure.

A text of lines, each with a checksum, that only ever gets longer: what a killed process wrote last may be cut off.

    8c1f3a02 {"kind":"fetch","url":"https://…","boot":"1f6b2c9d","version":1}
    51d0b7ee {"kind":"file","name":"model.safetensors","stamp":{"nbytes":…,"etag":"…"}}
    9a33f0c1 {"kind":"part","name":"model.safetensors","start":0,"stop":16777216}
"""

from __future__ import annotations

import zlib
from typing import Final

import msgspec

from tensorkeep.fetching._spans import joined
from tensorkeep.fetching._stamp import VersionId
from tensorkeep.transport import ByteRange

_VERSION: Final = 1


class Fetch(msgspec.Struct, frozen=True, tag_field="kind", tag="fetch"):
    """The first line.

    Attributes:
        url: What is fetched, without secrets.
        boot: What tells this run of the system from the next, after which the disk may lack what was written; None
            where each part was on the disk before it was recorded.
        version: Of this format.
        origin: A digest of all that says where it is, as `RemotePath.fingerprint` gives it.
    """

    url: str
    boot: str | None
    version: int = _VERSION
    origin: str = ""


class Begun(msgspec.Struct, frozen=True, tag_field="kind", tag="file"):
    """A file that is made, of which nothing is there yet.

    Attributes:
        name: Relative, with `/` between its parts.
        stamp: The version that is fetched.
    """

    name: str
    stamp: VersionId


class Came(msgspec.Struct, frozen=True, tag_field="kind", tag="part"):
    """Bytes of a file that are written.

    Attributes:
        name: Of the file.
        start: First byte.
        stop: One past the last byte.
    """

    name: str
    start: int
    stop: int


_Line = Fetch | Begun | Came
_decoder: Final[msgspec.json.Decoder[_Line]] = msgspec.json.Decoder(_Line)


class Progress(msgspec.Struct):
    """What a journal says.

    Attributes:
        fetch: Its first line; None where there is none that counts.
        stamps: Name of a file to its version.
        spans: Name of a file to those of its bytes that are there.
    """

    fetch: Fetch | None = None
    stamps: dict[str, VersionId] = msgspec.field(default_factory=dict)
    spans: dict[str, list[ByteRange]] = msgspec.field(default_factory=dict)


def encode_line(line: _Line) -> bytes:
    """Return the text of one line."""
    text = msgspec.json.encode(line)
    return b"%08x %s\n" % (zlib.crc32(text), text)


def decode_journal(text: bytes) -> Progress:
    """Read a journal, up to the first line that is damaged or not all there."""
    progress = Progress()
    for found in text.splitlines(keepends=True):
        line = _decoded(found)
        if isinstance(line, Fetch):
            progress.fetch = line if line.version == _VERSION else None
        if line is None or progress.fetch is None:
            break
        _apply(line, progress)
    progress.spans = {name: joined(spans) for name, spans in progress.spans.items()}
    return progress


def _decoded(line: bytes) -> _Line | None:
    checksum, _, text = line.partition(b" ")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text[:-1]):
        return None
    try:
        return _decoder.decode(text)
    except msgspec.MsgspecError:  # of a later version
        return None


def _apply(line: _Line, progress: Progress) -> None:
    if isinstance(line, Begun):
        progress.stamps[line.name] = line.stamp
        progress.spans[line.name] = []
    elif isinstance(line, Came) and 0 <= line.start < line.stop and line.name in progress.spans:
        progress.spans[line.name].append(ByteRange(line.start, line.stop))
