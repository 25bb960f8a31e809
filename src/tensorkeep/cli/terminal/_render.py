"""The only file that prints.

Only characters that a terminal shows are printed; all others are escaped, and rich's markup is never interpreted.
Colors appear only on terminals, and not if `NO_COLOR` is set. No line is cut or wrapped here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from itertools import islice

from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style as Look

from tensorkeep.cli.terminal._columns import Line, Style
from tensorkeep.cli.terminal._result import Result, json_lines
from tensorkeep.texts import printable

_LOOKS: dict[Style, Look | None] = {
    "": None,
    "dim": Look(dim=True),
    "heading": Look(dim=True, italic=True),
    "title": Look(bold=True),
    "module": Look(bold=True, color="blue"),
    "dtype": Look(color="cyan"),
    "warning": Look(color="yellow"),
    "error": Look(color="red"),
}
_BATCH = 1000
"""Lines per print: enough to be fast, few enough that `| head` stops the work early."""


class OutputClosedError(Exception):
    """Nothing reads the output any more, as after `| head`."""


class _Console(Console):
    """A console that lets the caller handle a closed pipe."""

    def on_broken_pipe(self) -> None:
        """Raise, where rich would exit with an error code."""
        raise OutputClosedError


def show(lines: Iterable[Line]) -> None:
    """Print lines to standard output."""
    _print(_Console(), lines)


def rendered(lines: Iterable[Line]) -> str:
    """Return what `show` would print."""
    console = _Console()
    with console.capture() as capture:
        _print(console, lines)
    return capture.get()


def show_text(lines: Iterable[str]) -> None:
    """Print unstyled lines to standard output."""
    show([(line, "")] for line in lines)


def show_result(result: Result, *, as_json: bool) -> None:
    """Print the result of a command, for people or for programs."""
    if as_json:
        show_text(json_lines(result.members()))
    else:
        show(result.lines(terminal_width()))


def show_error(message: str) -> None:
    """Print an error to standard error, in one line."""
    _print(_Console(stderr=True), [[(f"error: {message}", "error")]])


def show_failure(message: str, trace: Iterable[str], members: Mapping[str, object] | None) -> None:
    """Print an error to standard error after its trace, and for programs as a JSON object to standard output too."""
    _print(_Console(stderr=True), ([(line, "dim")] for line in trace))
    show_error(message)
    if members is not None:
        show_text(json_lines(members))


def show_warning(message: str) -> None:
    """Print a warning to standard error, in one line."""
    _print(_Console(stderr=True), [[(f"warning: {message}", "warning")]])


def ask(question: str) -> bool:
    """Ask on standard error, and read a yes from standard input."""
    console = _Console(stderr=True)
    console.print(printable(f"{question} [y/N] "), soft_wrap=True, end="", markup=False, highlight=False)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


@contextmanager
def progress_bar(doing: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show progress on standard error, if that is a terminal; the bar disappears at the end."""
    console = _Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(doing, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield advance


def terminal_width() -> int | None:
    """Return the terminal's width in characters, or None if the output is not a terminal."""
    console = _Console()
    return console.width if console.is_terminal else None


def draws_ascii_only() -> bool:
    """Say whether standard output can encode only ASCII."""
    return _Console().options.ascii_only


@contextmanager
def lenient_streams() -> Iterator[None]:
    """Let standard output and error escape characters that they cannot encode, instead of failing."""
    streams = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, TextIOWrapper)]
    before = [str(stream.errors) for stream in streams]
    for stream in streams:
        stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        for stream, errors in zip(streams, before, strict=True):
            with suppress(OSError, ValueError):  # the output was closed
                stream.reconfigure(errors=errors)


def _print(console: Console, lines: Iterable[Line]) -> None:
    has_colors = console.is_terminal and not console.no_color
    remaining = iter(lines)
    while batch := list(islice(remaining, _BATCH)):
        segments = (segment for line in batch for segment in _segments(line, has_colors=has_colors))
        try:
            console.print(Segments(segments), soft_wrap=True, end="")
        except (OutputClosedError, OSError, KeyboardInterrupt):
            _discard_rest(console)
            raise


def _discard_rest(console: Console) -> None:
    """Discard buffered output, so that the interpreter neither waits for it nor fails on it at exit."""
    with suppress(OSError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), console.file.fileno())


def _segments(line: Line, *, has_colors: bool) -> Iterator[Segment]:
    if has_colors:
        for text, style in line:
            yield Segment(printable(text), _LOOKS[style])
    else:
        yield Segment(printable("".join(text for text, _ in line)))
    yield Segment.line()
