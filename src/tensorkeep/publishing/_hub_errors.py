"""What goes wrong with the Hub, as errors of ours that say what to do; none has a token in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from tensorkeep.errors import (
    AccessDeniedError,
    LimitError,
    SourceChangedError,
    SourceMissingError,
    TensorkeepError,
    TransientError,
    TransportError,
)
from tensorkeep.texts import redacted

_LOG_IN: Final = "Log in with `hf auth login`, set HF_TOKEN, or pass tensorkeep.remote(url, token=...)"

_xet_status = re.compile(r"HTTP status (?:client|server) error \(([0-9]{3})").search

_Answer: TypeAlias = tuple[type[TransportError] | type[LimitError], str, str | None]
_UNREACHED: Final[_Answer] = (TransientError, "the Hub could not be reached", None)
_REFUSED: Final[_Answer] = (TransportError, "the Hub refused the request", None)
_ANSWERS: Final[dict[object, _Answer]] = {
    "gated": (AccessDeniedError, "the repository is gated", "Ask for access on its page, or use another token"),
    401: (AccessDeniedError, "the Hub does not accept the token", _LOG_IN),
    403: (AccessDeniedError, "the token does not allow this", "Use a token that may write to this repository"),
    413: (LimitError, "the request is too large for the Hub", None),
    429: (TransientError, "the Hub's rate limit is reached", None),
}
"""Status to the error, its message and what to do."""


@contextmanager
def hub_errors(url: str, token: str | None = None) -> Iterator[None]:
    """Turn errors of huggingface_hub in the block into ours."""
    try:
        yield
    except TensorkeepError:
        raise
    except Exception as error:  # noqa: BLE001 - it raises whatever its libraries do
        raise _translated(error, url, token) from None


def no_token(url: str) -> AccessDeniedError:
    """Return the error for someone without a token."""
    return AccessDeniedError("uploads to the Hub need a token", path=url, hint=_LOG_IN)


def no_repository(url: str) -> SourceMissingError:
    """Return the error for a repository or branch that is not there."""
    return SourceMissingError(
        "there is no such repository or branch, or the token has no access to it",
        path=url,
        hint="create=True (--create) creates it; private=True (--private) makes it private",
    )


def moved(url: str) -> SourceChangedError:
    """Return the error for a branch that another commit has changed."""
    return SourceChangedError(
        "somebody else changed the branch during this push",
        path=url,
        hint="Nothing was published. Push again: only what is missing is sent",
    )


def _translated(error: Exception, url: str, token: str | None) -> TensorkeepError:
    error = _origin_of(error)
    if isinstance(error, OSError) and error.filename is not None:
        return TransportError("could not read the file", path=os.fsdecode(error.filename), found=error.strerror)
    status = getattr(getattr(error, "response", None), "status_code", None) or _status_from_xet(error)
    kind = type(error).__name__
    if kind in {"RepositoryNotFoundError", "RevisionNotFoundError"}:
        return no_repository(url)
    if status in {409, 412}:
        return moved(url)
    made, message, hint = _ANSWERS.get("gated" if kind == "GatedRepoError" else status, _REFUSED)
    is_lost = status is None and not isinstance(error, ValueError)  # what huggingface_hub itself refuses
    if is_lost or (status is not None and status >= 500):
        made, message, hint = _UNREACHED
    return made(message, path=url, found=_harmless(error, token), hint=hint)


def _status_from_xet(error: Exception) -> int | None:
    """Return the status in the text of an error of Xet's client, which has it nowhere else."""
    found = _xet_status(str(error))
    return int(found[1]) if found else None


def _origin_of(error: BaseException) -> Any:
    """Return the error with the answer of the server, which others may have been raised from."""
    while getattr(error, "response", None) is None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return error


def _harmless(error: Any, token: str | None) -> str:
    text = getattr(error, "server_message", None) or str(error) or type(error).__name__
    return redacted(text.replace(token, "…") if token else text)
