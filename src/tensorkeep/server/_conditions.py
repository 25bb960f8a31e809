"""Conditional requests and ranges (RFC 9110, 13 and 14): which status and which parts of a file. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from email.utils import formatdate, parsedate_to_datetime
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from tensorkeep.transport import ByteRange

_LAST_SECOND: Final = 253_402_300_799
"""The end of the year 9999, the last one that an HTTP date can have."""

_find_tags = re.compile(r'(W/)?"([^"]*)"').findall
_match_ranges = re.compile(r"bytes=([0-9,\s-]+)", re.IGNORECASE | re.ASCII).fullmatch
_match_range = re.compile(r"([0-9]{1,30})-([0-9]{1,30})?|-([0-9]{1,30})").fullmatch


class FileVersion(NamedTuple):
    """Distinguishes a file from earlier and later ones of the same name.

    Attributes:
        etag: A strong ETag: it differs for every other file, and after every change that the system records.
        modified_s: When it was last changed, in whole seconds since 1970.
        nbytes: Its size in bytes.
    """

    etag: str
    modified_s: int
    nbytes: int

    @property
    def last_modified(self) -> str:
        """The time of the last change, as a header value."""
        return _as_date(self.modified_s)


@lru_cache(256)
def _as_date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


def version_of(status: os.stat_result) -> FileVersion:
    """Return the version of an open file.

    The inode distinguishes a file from a replacement with the same size and mtime, such as a copy that kept the time.
    ctime is left out: another hard link to the same bytes changes it too.
    """
    etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"'
    return FileVersion(etag, min(max(int(status.st_mtime), 0), _LAST_SECOND), status.st_size)


class Decision(NamedTuple):
    """How to answer a request for a file.

    Attributes:
        status: 200 or 206 with bytes; 304, 412 or 416 without.
        spans: The half-open parts of the file, ascending and disjoint: one, or for 206 possibly several.
    """

    status: int
    spans: tuple[ByteRange, ...] = ()


def decide(method: str, headers: Mapping[str, str], version: FileVersion) -> Decision:
    """Decide how to answer a request for a file.

    Unknown kinds of ranges are answered with the whole file, as the RFC allows. So are ranges that overlap or are not
    ascending, since a small request could otherwise cause a huge answer.
    """
    if _is_refused(headers, version):
        return Decision(412)
    if _is_known(headers, version):
        return Decision(304)
    asked = _ranges(headers.get("range", "")) if method == "GET" else None
    if asked is None or headers.get("if-range", version.etag) not in {version.etag, version.last_modified}:
        return Decision(200, (ByteRange(0, version.nbytes),))
    spans = tuple(span for text in asked if (span := _span(text, version.nbytes)))
    if any(before.stop > after.start for before, after in pairwise(spans)):
        return Decision(200, (ByteRange(0, version.nbytes),))
    return Decision(206, spans) if spans else Decision(416)


def _ranges(header: str) -> list[re.Match[str]] | None:
    """Return the requested ranges; None if there are none, or any is invalid."""
    found = _match_ranges(header)
    ranges = [_match_range(text.strip()) for text in found[1].split(",")] if found else []
    known = [each for each in ranges if each is not None]
    return known if known and len(known) == len(ranges) else None


def _span(asked: re.Match[str], nbytes: int) -> ByteRange | None:
    """Clip a range to the file; None if nothing is left."""
    first, last, tail = asked.groups()
    if tail is not None:
        start, stop = max(nbytes - int(tail), 0), nbytes
    else:
        start, stop = int(first), min(int(last) + 1 if last else nbytes, nbytes)
    return ByteRange(start, stop) if start < stop else None


def _is_refused(headers: Mapping[str, str], version: FileVersion) -> bool:
    """Say whether the request requires another version (If-Match, If-Unmodified-Since)."""
    wanted = headers.get("if-match")
    if wanted is not None:
        return wanted.strip() != "*" and ("", version.etag.strip('"')) not in _find_tags(wanted)
    before = _seconds(headers.get("if-unmodified-since"))
    return before is not None and version.modified_s > before


def _is_known(headers: Mapping[str, str], version: FileVersion) -> bool:
    """Say whether the client already has this version (If-None-Match, If-Modified-Since)."""
    known = headers.get("if-none-match")
    if known is not None:
        return known.strip() == "*" or version.etag.strip('"') in {tag for _, tag in _find_tags(known)}
    since = _seconds(headers.get("if-modified-since"))
    return since is not None and version.modified_s <= since


def _seconds(date: str | None) -> float | None:
    """Return a header's date in seconds since 1970; None if it is not a date."""
    try:
        return parsedate_to_datetime(date).timestamp() if date else None
    except (ValueError, OverflowError):
        return None
