"""Errors as the page shows them. Pure."""

from __future__ import annotations

import logging
from typing import Any, Final

from tensorkeep.errors import SourceMissingError, TensorkeepError
from tensorkeep.viewing._query import QueryError

_log = logging.getLogger("tensorkeep.viewing")


class BusyError(TensorkeepError):
    """More is asked for at once than a page of ours asks for."""


_STATUSES: Final[tuple[tuple[type[TensorkeepError], int], ...]] = (
    (QueryError, 400),
    (SourceMissingError, 404),
    (BusyError, 503),
    (TensorkeepError, 422),
)
"""Class to status; the first that fits."""


def failure(error: Exception) -> tuple[int, dict[str, Any]]:
    """Return the status of an error, and what JSON has of it."""
    if isinstance(error, TensorkeepError):
        status = next(status for kind, status in _STATUSES if isinstance(error, kind))
        return status, {"error": {"kind": type(error).__name__, **error.fields(), "text": str(error)}}
    # What an unforeseen error says may be of this machine rather than of the file.
    _log.error("An answer failed", exc_info=error)
    text = "the viewer failed; see the terminal where it runs"
    empty = dict.fromkeys(("path", "tensor", "expected", "found", "hint"))
    return 500, {"error": {"kind": "Error", "message": text, **empty, "text": text}}
