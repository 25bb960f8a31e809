"""Why a command did not do what it should, for people and for programs. Pure.

With `--json`, the document has one member, `error`: its `kind` is the name of a class of `tensorkeep.errors` or of
Python, or `UsageError`; `text` is the whole line that people see; the others are its parts, or null.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

import msgspec
import typer

from tensorkeep.errors import TensorkeepError

_UsageError = cast("type[Exception]", typer.BadParameter.__base__)
"""Raised by typer for a command line it cannot parse; its module differs between versions."""

_NEGATIVE: Final = re.compile(r"-[0-9]")
"""What an error shows of an index such as `-12:` that was taken for an option."""


_PYDANTIC: Final = re.compile(r"Input should be ([^,]*)(?:, unable to parse .*)?")
"""Errors of newer versions of typer about text that is not a number, and numbers that are out of range."""


class Failure(msgspec.Struct, frozen=True):
    """An error that ended a command.

    Attributes:
        kind: The name of its class.
        text: All of it, in one line.
        parts: The fields of an error of tensorkeep.
        is_defect: Whether nothing that users do should cause it.
    """

    kind: str
    text: str
    parts: dict[str, str | None]
    is_defect: bool = False

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Say what an error means to users."""
        kind = type(error).__name__
        match error:
            case TensorkeepError():
                return cls(kind, str(error), error.fields())
            case _UsageError():
                return cls("UsageError", text := _usage_text(error), _parts(text))
            case MemoryError():
                return cls(kind, text := f"not enough memory: {error}", _parts(text))
            case OSError():
                path = None if error.filename is None else str(error.filename)
                return cls(kind, str(error), _parts(error.strerror or str(error), path))
            case _:
                text = f"a defect in tensorkeep, please report it: {kind}: {error}"
                return cls(kind, text, _parts(text), is_defect=True)

    def members(self) -> dict[str, object]:
        """Return the same for JSON."""
        return {"error": {"kind": self.kind, **self.parts, "text": self.text}}


def _parts(message: str, path: str | None = None) -> dict[str, str | None]:
    return TensorkeepError(message, path=path).fields()


def _usage_text(error: Any) -> str:
    message = " ".join(error.format_message().split())
    if not message.endswith("..."):  # of a usage
        message = message.removesuffix(".")
    message = message.replace(": Value error, ", ": ", 1)  # pydantic's prefix, which newer versions of typer keep
    message = _PYDANTIC.sub(r"the value must be \1", message)
    if _NEGATIVE.fullmatch(getattr(error, "option_name", "")):
        message += ". Put an index that starts with a minus in brackets, such as '[-1]'"
    return f"{message} (see {error.ctx.command_path} --help)" if error.ctx else message
