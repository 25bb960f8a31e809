"""The application: the commands, and errors as messages and exit codes."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, Final, cast

import typer

import tensorkeep
from tensorkeep.cli.commands import GROUPS, Command, Program
from tensorkeep.cli.terminal import OutputClosedError, lenient_streams, show_error, show_text, show_warning
from tensorkeep.errors import TensorkeepError

EXIT_ERROR: Final = 1
EXIT_UNANSWERED: Final = 2
"""An error in a command whose exit codes 0 and 1 are answers."""

EXIT_INTERRUPTED: Final = 130
"""128 plus the number of SIGINT, as shells report it."""

EXIT_OUTPUT_CLOSED: Final = 141
"""128 plus the number of SIGPIPE, as shells report it."""

_QUESTIONS: Final = {"diff", "scan", "verify"}
"""Commands whose exit codes are answers."""

_UsageError = cast("type[Exception]", typer.BadParameter.__base__)
"""Raised by typer for a command line it cannot parse; its module differs between versions."""

_NEGATIVE = re.compile(r"-[0-9]")
"""What an error shows of an index such as `-12:` that was taken for an option."""

app = typer.Typer(
    name="tensorkeep",
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _add(command: Command) -> None:
    """Register a command; the list of commands shows the first line of its help, which typer would cut."""
    summary = (command.function.__doc__ or "").partition("\n")[0]
    app.command(command.name, short_help=summary, context_settings=command.parsing)(command.function)


for _group in GROUPS.values():
    for _command in _group:
        _add(_command)


def _show_version(wanted: bool) -> None:
    if wanted:
        show_text([f"tensorkeep {tensorkeep.__version__}"])
        raise typer.Exit


@app.callback()
def _tensorkeep(
    *,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Keeps tensors safe: inspects, verifies, compares and rewrites checkpoints, and never runs code from them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    try:
        with lenient_streams(), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: show_warning(str(message))
            outcome = _run(sys.argv[1:] if arguments is None else list(arguments))
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except OutputClosedError:
        return EXIT_OUTPUT_CLOSED
    if isinstance(outcome, int):
        return outcome
    outcome.run()  # not in `_run`, which would handle its errors, warnings and output
    return 0


def _run(arguments: list[str]) -> int | Program:
    """Run a command; return its exit code, or the program to be run by `run`."""
    try:
        code: object = app(arguments or ["--help"], prog_name="tensorkeep", standalone_mode=False)
    except _UsageError as error:
        show_error(_usage_message(error))
    except MemoryError as error:
        show_error(f"not enough memory: {error}")
    except (TensorkeepError, OSError) as error:
        show_error(str(error))
    else:
        return code if isinstance(code, int | Program) else 0
    return EXIT_UNANSWERED if _QUESTIONS.intersection(arguments[:1]) else EXIT_ERROR


def _usage_message(error: Any) -> str:
    message = " ".join(error.format_message().split()).removesuffix(".")
    message = message.replace(": Value error, ", ": ", 1)  # pydantic's prefix, which newer versions of typer keep
    if _NEGATIVE.fullmatch(getattr(error, "option_name", "")):
        message += ". Put an index that starts with a minus in brackets, such as '[-1]'"
    return f"{message} (see {error.ctx.command_path} --help)" if error.ctx else message
