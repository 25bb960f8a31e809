"""The command line: what a command says and what goes wrong, as messages and exit statuses."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

import typer

from tensorkeep.cli._application import app
from tensorkeep.cli.commands import Program
from tensorkeep.cli.reports import Failure
from tensorkeep.cli.terminal import OutputClosedError, lenient_streams, show_failure, show_warning

EXIT_FAILED: Final = 2
"""There is no answer, or nothing was done. 1 is an answer: damage, a difference, a danger."""

EXIT_INTERRUPTED: Final = 130
"""128 plus the number of SIGINT, as shells report it."""

EXIT_OUTPUT_CLOSED: Final = 141
"""128 plus the number of SIGPIPE, as shells report it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        with lenient_streams(), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: show_warning(str(message))
            outcome = _run(given)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except OutputClosedError:
        return EXIT_OUTPUT_CLOSED
    if isinstance(outcome, int):
        return outcome
    outcome.run()  # not in `_run`, which would handle its errors, warnings and output
    return 0


def _run(arguments: list[str]) -> int | Program:
    """Run a command; return its exit status, or the program to be run by `run`."""
    try:
        code: object = app(arguments or ["--help"], prog_name="tensorkeep", standalone_mode=False)
    except (typer.Abort, OutputClosedError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, status 1 would be an answer
        failure = Failure.of(error)
        trace = traceback.format_exc().splitlines() if failure.is_defect else []
        show_failure(failure.text, trace, failure.members() if _wants_json(arguments) else None)
        return EXIT_FAILED
    return code if isinstance(code, int | Program) else 0


def _wants_json(arguments: list[str]) -> bool:
    """Say whether a program reads the output, even if the other arguments make no sense."""
    return arguments[:1] != ["run"] and "--json" in takewhile(lambda argument: argument != "--", arguments)
