"""NumPy's `.npy` files: an array of numbers is passed over, an array of objects is a pickle after the header."""

from __future__ import annotations

from typing import Final

from tensorkeep.errors import LimitError, TensorkeepError
from tensorkeep.formats.npy import FIRST_NBYTES, MAGIC, header_nbytes, parse_array_header
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner._scan_pickles import scan_pickles

_MAX_ARRAYS: Final = 100_000


def scan_arrays(content: Content, log: FindingLog) -> Content:
    """Scan the arrays in a file, which may follow each other, and return what follows them."""
    log.name_form("NumPy array", content)
    rest = content
    for _ in range(_MAX_ARRAYS):
        stop = _stop_of_numbers(rest)
        if stop is None:
            return _scan_objects(rest, log)
        if stop > rest.nbytes:
            log.add("unreadable", "the array ends before its data", rest)
            return rest.part(rest.nbytes)
        rest = rest.part(stop)
        if rest.read(min(rest.nbytes, len(MAGIC))) != MAGIC:
            return rest
    raise LimitError("too many arrays follow each other", expected=f"at most {_MAX_ARRAYS:,}")


def _stop_of_numbers(content: Content) -> int | None:
    """Return where an array of numbers ends; None if it may hold objects, for any reader."""
    head = content.read(min(content.nbytes, FIRST_NBYTES))
    try:
        data_start = header_nbytes(head, content.nbytes)
        header = parse_array_header(content.read(data_start) if data_start > len(head) else head[:data_start])
    except TensorkeepError:
        return None
    return None if header.elements.holds_objects else data_start + header.data_nbytes


def _scan_objects(content: Content, log: FindingLog) -> Content:
    """Scan the pickle after a header, and all that follows it."""
    head = content.read(min(content.nbytes, FIRST_NBYTES))
    begin = 10 if head[6:7] == b"\x01" else 12
    start = begin + int.from_bytes(head[8:begin], "little")
    scan_pickles(content.part(min(start, content.nbytes)), log, is_certain=True)
    return content.part(content.nbytes)
