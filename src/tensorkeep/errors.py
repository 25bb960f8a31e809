"""All errors of tensorkeep, in one tree. Each is also the builtin exception that callers already catch.

    TensorkeepError
      FormatError [ValueError]             the bytes break their format
        HeaderError                        a malformed safetensors header, or one that does not fit its file
        IndexFileError                     a malformed index of a sharded checkpoint
        PickleError                        a malformed pickle, or one that contradicts itself
        ArchiveError                       a malformed archive, or one that readers could disagree on
      RefusedError [ValueError]            well-formed, but refused on purpose
        LimitError                         exceeds a bound in `tensorkeep.limits`
        UnsafeError                        a pickle that calls for something harmful; nothing was run
        UnsupportedError                   not supported, at least by this version
          DeviceError [RuntimeError]       a device that this machine does not have
      EncryptedError [ValueError]          encrypted, and the key for it is missing or another one
      IntegrityError [ValueError]          the bytes do not match their checksum or their index
        TrustError                         not proven to be from somebody whom a policy trusts
      TensorNotFoundError [KeyError]       no tensor with that name
      SelectionError [IndexError]          an index or slice that does not fit the tensor
      DtypeError [TypeError]               a dtype the array library or format does not have
      StateDictMismatchError [RuntimeError]          the checkpoint does not fit the model
      NotLoadedError [AssertionError]      a model that does not have a checkpoint's values
      StateError [TypeError]               a value that cannot be saved as data
      SharedMemoryError [RuntimeError, ValueError]   tensors share memory, where each needs its own
      TransportError [OSError]             bytes could not be read or written
        SourceMissingError [FileNotFoundError]       no file at that path
        AccessDeniedError [PermissionError]          missing permission
        SourceChangedError                 the file changed after it was opened
        RangeNotServedError                the server sends whole files only
        TransientError                     a temporary failure that outlasted all retries
        DestinationExistsError [FileExistsError]     something would be replaced
        BusyError                          another save to the same directory is running
      MissingDependencyError [ModuleNotFoundError]   an optional dependency is not installed

Errors can be pickled. Their fields say what happened, where, what was expected and found, and what to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from errno import EDQUOT, EFAULT, EFBIG, ENOSPC
from functools import partial
from typing import Any, Final, Self

from tensorkeep.limits import MAX_TEXT_LENGTH
from tensorkeep.texts import has_path, printable, redacted, shown_url

__all__ = [
    "AccessDeniedError",
    "ArchiveError",
    "BusyError",
    "DestinationExistsError",
    "DeviceError",
    "DtypeError",
    "EncryptedError",
    "FormatError",
    "HeaderError",
    "IndexFileError",
    "IntegrityError",
    "LimitError",
    "MissingDependencyError",
    "NotLoadedError",
    "PickleError",
    "RangeNotServedError",
    "RefusedError",
    "SafetensorError",
    "SelectionError",
    "SharedMemoryError",
    "SourceChangedError",
    "SourceMissingError",
    "StateDictMismatchError",
    "StateError",
    "TensorNotFoundError",
    "TensorkeepError",
    "TransientError",
    "TransportError",
    "TrustError",
    "UnsafeError",
    "UnsupportedError",
    "as_transport_error",
    "importing",
]


class TensorkeepError(Exception):
    """The base class of all errors in this package.

    Attributes:
        message: What happened, in one clause.
        path: The file, or the URL without secrets; None if not about a file.
        tensor: The name of the tensor, which the message must have too; None if not about a single tensor.
        expected: What should have been there, or None.
        found: What was there instead, or None.
        hint: What to do next, or None.
    """

    def __init__(
        self,
        message: str | None = "",
        *,
        path: str | None = None,
        tensor: str | None = None,
        expected: str | None = None,
        found: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(_bounded(message) or "")
        self.message = _bounded(message) or ""
        self.path = None if path is None else shown_url(str(path))
        self.tensor = tensor
        self.expected = _bounded(expected)
        self.found = _bounded(found)
        self.hint = _bounded(hint)

    def __str__(self) -> str:
        text = self.message
        if self.path is not None and not has_path(text, self.path):
            text += f" ({self.path})"
        found = "" if self.found == os.strerror(getattr(self, "errno", None) or 0) else "found "
        facts = [label + fact for label, fact in (("expected ", self.expected), (found, self.found)) if fact]
        text += ": " + ", ".join(facts) if facts else ""
        return f"{text}. {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self.fields()), (), self._others()

    def fields(self) -> dict[str, str | None]:
        """Return the constructor's arguments by name."""
        return {
            "message": self.message,
            "path": self.path,
            "tensor": self.tensor,
            "expected": self.expected,
            "found": self.found,
            "hint": self.hint,
        }

    def with_fields(self, **changes: str | None) -> Self:
        """Return a copy with some fields changed, such as a path that only the caller knows.

        Args:
            **changes: New values, by field name.
        """
        error = type(self)(**self.fields() | changes)
        vars(error).update(self._others())
        return error

    def _others(self) -> dict[str, Any]:
        """Return the attributes that only a subclass has."""
        return {name: value for name, value in vars(self).items() if name not in self.fields()}


def _bounded(text: str | None) -> str | None:
    """Shorten a text that may come from a hostile file, escape control characters, and remove secrets."""
    if text is None:
        return None
    text = redacted(text)
    return printable(text if len(text) <= MAX_TEXT_LENGTH else f"{text[:MAX_TEXT_LENGTH]}…")


SafetensorError = TensorkeepError
"""The name that code written for the safetensors package catches."""


class FormatError(TensorkeepError, ValueError):
    """The bytes are not valid in their format."""


class HeaderError(FormatError):
    """A safetensors header that is malformed, contradicts itself, or does not fit its file."""


class IndexFileError(FormatError):
    """An index of a sharded checkpoint that is malformed or contradicts itself."""


class PickleError(FormatError):
    """A pickle that is malformed, contradicts itself, or does not fit its file."""


class ArchiveError(FormatError):
    """A zip or tar archive that is malformed, or that two readers could interpret differently."""


class RefusedError(TensorkeepError, ValueError):
    """Well-formed input that is refused on purpose."""


class LimitError(RefusedError):
    """Something exceeds a bound in `tensorkeep.limits`."""


class UnsafeError(RefusedError):
    """A pickle calls for something that could only do harm; nothing in it was run."""


class UnsupportedError(RefusedError):
    """Something that is not supported, at least not by this version."""


class DeviceError(UnsupportedError, RuntimeError):
    """A device that this machine, or the array library, does not have."""


class EncryptedError(TensorkeepError, ValueError):
    """The checkpoint is encrypted, and the key for it was not given, cannot be had, or is another one."""


class IntegrityError(TensorkeepError, ValueError):
    """The bytes do not match their checksum, their index or their manifest."""


class TrustError(IntegrityError):
    """It is not proven that somebody whom a policy trusts has signed exactly this."""


class TensorNotFoundError(TensorkeepError, KeyError):
    """There is no tensor with that name."""


class SelectionError(TensorkeepError, IndexError):
    """An index or slice that does not fit the tensor."""


class DtypeError(TensorkeepError, TypeError):
    """A dtype that the array library or the format does not have."""


class StateDictMismatchError(TensorkeepError, RuntimeError):
    """The checkpoint does not fit the model; the model was not changed.

    Attributes:
        missing: Names that are only in the model.
        unexpected: Names that are only in the checkpoint.
        mismatched: `(name, shape in the model, shape in the checkpoint)` where the shape, or the dtype, differs.
    """

    def __init__(
        self,
        message: str | None = "",
        *,
        missing: Sequence[str] = (),
        unexpected: Sequence[str] = (),
        mismatched: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]] = (),
        **fields: str | None,
    ) -> None:
        super().__init__(message, **fields)
        self.missing = tuple(missing)
        self.unexpected = tuple(unexpected)
        self.mismatched = tuple(mismatched)


class NotLoadedError(TensorkeepError, AssertionError):
    """A model does not have the values of a checkpoint.

    Attributes:
        differing: Names of the parameters whose values differ, or that have no data.
    """

    def __init__(self, message: str | None = "", *, differing: Sequence[str] = (), **fields: str | None) -> None:
        super().__init__(message, **fields)
        self.differing = tuple(differing)


class StateError(TensorkeepError, TypeError):
    """A value that cannot be saved as data; the message has its path, its class and what to do."""


class SharedMemoryError(TensorkeepError, RuntimeError, ValueError):
    """Tensors share memory, where each needs its own."""


class TransportError(TensorkeepError, OSError):
    """Bytes could not be read or written. `errno` is the number the system gave, or None."""

    def __reduce__(self) -> tuple[Any, ...]:
        restore, arguments, others = super().__reduce__()
        return restore, arguments, others | {"errno": self.errno}

    def numbered(self, errno: int | None) -> Self:
        """Set `errno` and return this error.

        Args:
            errno: A number of the `errno` module, or None.
        """
        self.errno = errno
        return self


class SourceMissingError(TransportError, FileNotFoundError):
    """There is no file at that path."""

    @classmethod
    def at(cls, path: str, hint: str | None = None) -> Self:
        """Return the error for a local path, worded as Python words it."""
        return cls(f"No such file or directory: {path}", path=path, hint=hint)


class AccessDeniedError(TransportError, PermissionError):
    """The user lacks permission to read or write there."""


class SourceChangedError(TransportError):
    """The file changed, or was replaced, after it was opened."""


class RangeNotServedError(TransportError):
    """The server sends whole files only, and this one is too large for that."""


class TransientError(TransportError):
    """A failure that may not happen again, such as a cut connection, a busy server or a timeout.

    Attributes:
        retry_after_s: Seconds to wait before the next request, if the server says; else None.
    """

    retry_after_s: float | None = None


class DestinationExistsError(TransportError, FileExistsError):
    """The destination already has something that would be replaced."""


class BusyError(TransportError):
    """Another save to the same directory is running."""


class MissingDependencyError(TensorkeepError, ModuleNotFoundError):
    """An optional dependency is not installed; the message has the command that installs it."""


_HINTS: Final[dict[int | None, str]] = {
    EFAULT: "A file that was mapped for these tensors was truncated",
    ENOSPC: "Free some space there and start again, or write to another disk",
    EDQUOT: "Your quota is used up: free some space there and start again, or write to another disk",
    EFBIG: "The limit on the size of files (ulimit -f) or the file system does not allow such large files",
}
"""What to do about some errors of the system, by their number."""


@contextmanager
def as_transport_error(message: str, path: str) -> Iterator[None]:
    """Raise `OSError` from the block as a `TransportError`.

    Args:
        message: What failed, such as "could not read the file".
        path: The file or URL.

    Yields:
        None.

    Raises:
        TransportError: If the block raises `OSError`, or `ValueError` for an impossible path. `errno` is the same;
            `FileNotFoundError` becomes `SourceMissingError`, `PermissionError` becomes `AccessDeniedError`.
        TensorkeepError: If the block raises one, unchanged.
    """
    try:
        yield
    except TensorkeepError:
        raise
    except (OSError, ValueError) as cause:
        kinds: dict[type, type[TransportError]] = {
            FileNotFoundError: SourceMissingError,
            PermissionError: AccessDeniedError,
        }
        number = getattr(cause, "errno", None)
        raise (
            kinds.get(type(cause), TransportError)(
                message,
                path=path,
                found=getattr(cause, "strerror", None) or str(cause),
                hint=_HINTS.get(number),
            ).numbered(number)
        ) from cause


@contextmanager
def importing(**packages: str) -> Iterator[None]:
    """Say how to install a package that an import in the block does not find.

    Args:
        **packages: The packages that may be missing, each with its name for pip.

    Yields:
        None.

    Raises:
        MissingDependencyError: If one of the packages is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        wanted = packages.get(error.name or "")
        if wanted is None:
            raise
        raise MissingDependencyError(
            f"{error.name} is not installed", hint=f"Install it: pip install {wanted}"
        ) from error
