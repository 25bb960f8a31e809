"""The journal of a fetch: the version of each file, and which of its bytes have been written. Pure.

It is append-only text; each line has a checksum, because the last line of a killed process may be cut off.

    8c1f3a02 {"kind":"fetch","url":"https://…","boot":"1f6b2c9d","version":1}
    51d0b7ee {"kind":"file","name":"model.safetensors","stamp":{"nbytes":…,"etag":"…"}}
    9a33f0c1 {"kind":"part","name":"model.safetensors","start":0,"stop":16777216}
"""

from __future__ import annotations

import zlib
from typing import Final

import msgspec

from tensorkeep.fetching._spans import joined
from tensorkeep.fetching._version_id import VersionId
from tensorkeep.transport import ByteRange

_VERSION: Final = 1


class Fetch(msgspec.Struct, frozen=True, tag_field="kind", tag="fetch"):
    """The first line.

    Attributes:
        url: The URL, without secrets.
        boot: Id of this boot of the system; after a reboot, what was written may not be on the disk. None if each
            part was flushed before it was recorded.
        version: Version of this format.
        origin: Digest of the URL and its options, from `RemotePath.fingerprint`.
    """

    url: str
    boot: str | None
    version: int = _VERSION
    origin: str = ""


class Begun(msgspec.Struct, frozen=True, tag_field="kind", tag="file"):
    """A file that was created and is still empty.

    Attributes:
        name: Relative, separated by `/`.
        stamp: The version that is downloaded.
    """

    name: str
    stamp: VersionId


class Came(msgspec.Struct, frozen=True, tag_field="kind", tag="part"):
    """Bytes of a file that were written, from `start` to `stop`, half-open."""

    name: str
    start: int
    stop: int


_Line = Fetch | Begun | Came
_decoder: Final[msgspec.json.Decoder[_Line]] = msgspec.json.Decoder(_Line)


class Progress(msgspec.Struct):
    """The contents of a journal.

    Attributes:
        fetch: Its first line; None if it is missing or has another version.
        stamps: File name to its version.
        spans: File name to the bytes that were written.
    """

    fetch: Fetch | None = None
    stamps: dict[str, VersionId] = msgspec.field(default_factory=dict)
    spans: dict[str, list[ByteRange]] = msgspec.field(default_factory=dict)


def encode_line(line: _Line) -> bytes:
    """Return the text of one line."""
    text = msgspec.json.encode(line)
    return b"%08x %s\n" % (zlib.crc32(text), text)


def decode_journal(text: bytes) -> Progress:
    """Read a journal up to the first line that is damaged or incomplete."""
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
    except msgspec.MsgspecError:  # a newer version wrote it
        return None


def _apply(line: _Line, progress: Progress) -> None:
    if isinstance(line, Begun):
        progress.stamps[line.name] = line.stamp
        progress.spans[line.name] = []
    elif isinstance(line, Came) and 0 <= line.start < line.stop and line.name in progress.spans:
        progress.spans[line.name].append(ByteRange(line.start, line.stop))
