"""Every error that tensorkeep raises, one tree; each also is the builtin that people already catch.

    TensorkeepError
      FormatError [ValueError]             the bytes break their format
        HeaderError                        a safetensors header that cannot be true
        IndexFileError                     an index of a sharded checkpoint that cannot be true
        PickleError                        a pickle that breaks the rules of its opcodes, or contradicts itself
        ArchiveError                       a zip or tar archive that two readers could read differently
      RefusedError [ValueError]            well formed, refused on purpose
        LimitError                         over a bound of `tensorkeep.limits`
        UnsafeError                        a pickle names what could only do harm; nothing was run
        UnsupportedError                   something this version cannot do
      IntegrityError [ValueError]          the bytes are not the ones that were promised
      TensorNotFoundError [KeyError]       no tensor of that name
      SelectionError [IndexError]          an index that does not fit the tensor
      DtypeError [TypeError]               this library cannot hold this dtype
      StateDictMismatchError [RuntimeError]          a checkpoint that does not fit the model
      StateError [TypeError]               a value that is no data, in what is to be saved
      SharedMemoryError [RuntimeError, ValueError]   tensors that share memory, where each must stand alone
      TransportError [OSError]             bytes could not be read or written
        SourceMissingError [FileNotFoundError]       nothing at that path
        AccessDeniedError [PermissionError]          the system does not let this user
        SourceChangedError                 the file is not the one that was opened
        RangeNotServedError                a server gives whole files only
        TransientError                     a server failed in a way that may pass, and was asked often enough
        BusyError                          another save into the directory is under way
      MissingDependencyError [ImportError] an optional library is needed

An error keeps what it knows in fields, pickles, and reads: what happened, where, what was expected,
what was found, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from errno import EFAULT
from typing import Any, Self

from tensorkeep.limits import MAX_TEXT_LENGTH
from tensorkeep.redaction import redacted, shown_url

__all__ = [
    "AccessDeniedError",
    "ArchiveError",
    "BusyError",
    "DtypeError",
    "FormatError",
    "HeaderError",
    "IndexFileError",
    "IntegrityError",
    "LimitError",
    "MissingDependencyError",
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
    "UnsafeError",
    "UnsupportedError",
    "as_transport_error",
]


class TensorkeepError(Exception):
    """The root of every error of this package.

    Attributes:
        message: What happened, in one clause.
        path: The file or URL, or None where there is none.
        tensor: The name of the tensor, or None where none is concerned.
        expected: What should have stood there, or None.
        found: What stood there instead, or None.
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
        if self.path is not None and self.path not in text:
            text += f" ({self.path})"
        facts = [f"{label} {fact}" for label, fact in (("expected", self.expected), ("found", self.found)) if fact]
        if facts:
            text += ": " + ", ".join(facts)
        return f"{text}. {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), dict(self.fields()))

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
        """Return the same error with some fields changed, such as a path that is known only further out.

        Args:
            **changes: Fields by name.
        """
        return type(self)(**self.fields() | changes)


def _bounded(text: str | None) -> str | None:
    """Cut a text in which a hostile file may have a say, escape what a terminal would obey, and hide secrets."""
    if text is None:
        return None
    text = redacted(text)
    if len(text) > MAX_TEXT_LENGTH:
        text = f"{text[:MAX_TEXT_LENGTH]}…"
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode-escape").decode()


def _restore(cls: type[TensorkeepError], fields: dict[str, Any]) -> TensorkeepError:
    return cls(**fields)


SafetensorError = TensorkeepError
"""The name under which users of the safetensors package catch these errors."""


class FormatError(TensorkeepError, ValueError):
    """The bytes break the rules of their format."""


class HeaderError(FormatError):
    """A safetensors header that is malformed or contradicts itself or its file."""


class IndexFileError(FormatError):
    """An index of a sharded checkpoint that is malformed or contradicts itself."""


class PickleError(FormatError):
    """A pickle that breaks the rules of its opcodes, or contradicts itself or its file."""


class ArchiveError(FormatError):
    """A zip or tar archive that is malformed, or that two readers could read differently."""


class RefusedError(TensorkeepError, ValueError):
    """Well formed, and refused on purpose."""


class LimitError(RefusedError):
    """More than a bound of `tensorkeep.limits` allows."""


class UnsafeError(RefusedError):
    """A pickle names what could only do harm; nothing of it was run."""


class UnsupportedError(RefusedError):
    """Something that this version cannot do."""


class IntegrityError(TensorkeepError, ValueError):
    """The bytes are not the ones that were promised."""


class TensorNotFoundError(TensorkeepError, KeyError):
    """No tensor of that name."""


class SelectionError(TensorkeepError, IndexError):
    """An index that does not fit the tensor."""


class DtypeError(TensorkeepError, TypeError):
    """A dtype that the array library, or the format, cannot hold."""


class StateDictMismatchError(TensorkeepError, RuntimeError):
    """A checkpoint does not fit the model that it is to be loaded into; nothing was written.

    Attributes:
        missing: Names that only the model has.
        unexpected: Names that only the checkpoint has.
        mismatched: Name, shape in the model and shape in the checkpoint, of tensors whose shapes differ.
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

    def with_fields(self, **changes: str | None) -> Self:
        """Return the same error, with its names, and with some fields changed."""
        error = super().with_fields(**changes)
        error.missing, error.unexpected, error.mismatched = self.missing, self.unexpected, self.mismatched
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        restore, arguments = super().__reduce__()
        return (
            restore,
            arguments,
            {"missing": self.missing, "unexpected": self.unexpected, "mismatched": self.mismatched},
        )


class StateError(TensorkeepError, TypeError):
    """A value that is no data stands in what is to be saved; the message has its path, its class and what to do."""


class SharedMemoryError(TensorkeepError, RuntimeError, ValueError):
    """Tensors that share memory, where each must stand alone."""


class TransportError(TensorkeepError, OSError):
    """Bytes could not be read or written; `errno` is the system's number where it gave one."""

    def __reduce__(self) -> tuple[Any, ...]:
        restore, arguments = super().__reduce__()
        return restore, arguments, {"errno": self.errno}

    def numbered(self, errno: int | None) -> Self:
        """Return the error itself, with the system's number.

        Args:
            errno: As in the module of that name; None where there is none.
        """
        self.errno = errno
        return self


class SourceMissingError(TransportError, FileNotFoundError):
    """Nothing stands at that path."""


class AccessDeniedError(TransportError, PermissionError):
    """The system does not let this user read or write there."""


class SourceChangedError(TransportError):
    """The file is no longer the one that was opened."""


class RangeNotServedError(TransportError):
    """A server gives whole files only, and this one is large."""


class TransientError(TransportError):
    """A request failed in a way that may not happen again: a cut connection, a busy server, a time that ran out.

    Attributes:
        retry_after_s: Seconds after which the server wants to be asked again; None where it does not say.
    """

    retry_after_s: float | None = None


class BusyError(TransportError):
    """Another save into the directory is under way."""


class MissingDependencyError(TensorkeepError, ImportError):
    """An optional library is needed; the message has the line that installs it."""


@contextmanager
def as_transport_error(message: str, path: str) -> Iterator[None]:
    """Turn the system's errors in the block into those of this tree.

    Args:
        message: What is being done in the block.
        path: The file or URL.

    Yields:
        Nothing.

    Raises:
        TransportError: Where the block raises OSError, or ValueError for a path that no system has. It has the same
            `errno`, and is a FileNotFoundError or PermissionError where that was one.
        TensorkeepError: As the block itself raises it.
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
                hint="A file that these tensors are mapped from became shorter" if number == EFAULT else None,
            ).numbered(number)
        ) from cause
