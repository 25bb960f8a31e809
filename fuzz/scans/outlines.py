"""Outlines of small pickles: values of a few bytes are left in the file, as those of large pickles are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

__all__ = ["outlined"]

_OUTLINE = "tensorkeep.formats.pickles.containers._outline"
_SCAN = "tensorkeep.scanner._scan_pickles"
_LENGTHS = (1, 2, 5, 16)


@contextmanager
def outlined(number: int) -> Iterator[None]:
    """Make `scan` leave values of a few bytes in the file, and read a few bytes at a time.

    Args:
        number: Number of the file, which decides how many bytes.
    """
    nbytes = _LENGTHS[number % len(_LENGTHS)]
    ahead = (1 + number % 7, 64)
    with (
        patch(f"{_OUTLINE}.MIN_PAYLOAD_NBYTES", nbytes),
        patch(f"{_OUTLINE}._FAR_NBYTES", 4 * nbytes),
        patch(f"{_OUTLINE}._AHEAD_NBYTES", ahead),
        patch(f"{_SCAN}.OUTLINED_FROM_NBYTES", 0),
    ):
        yield
