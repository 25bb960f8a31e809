"""Text on the terminal.

- `_columns`: columns of styled text. Pure.
- `_names`: names that are short and differ. Pure.
- `_sparkline`: a histogram as a few characters. Pure.
- `_result`: what a command reports, as lines and as JSON. Pure.
- `_render`: the only file that prints.
- `_files`: the files at a destination, before and after.
- `_interrupt`: the message after Ctrl-C, and commands that run until then.
- `_writing`: a question before something is replaced.
"""

from tensorkeep.cli.terminal._columns import Column, Line, Span, Style, columns, room_for_first
from tensorkeep.cli.terminal._files import replaced_text
from tensorkeep.cli.terminal._interrupt import call_on_signal, reporting_interrupt
from tensorkeep.cli.terminal._names import distinct_names
from tensorkeep.cli.terminal._render import (
    OutputClosedError,
    draws_ascii_only,
    lenient_streams,
    progress_bar,
    rendered,
    show,
    show_error,
    show_failure,
    show_result,
    show_text,
    show_warning,
    terminal_width,
)
from tensorkeep.cli.terminal._result import Result, json_lines
from tensorkeep.cli.terminal._sparkline import sparkline
from tensorkeep.cli.terminal._writing import Writing
from tensorkeep.texts import printable, shape_text, share_text, shortened, size_text, speed_text

__all__ = [
    "Column",
    "Line",
    "OutputClosedError",
    "Result",
    "Span",
    "Style",
    "Writing",
    "call_on_signal",
    "columns",
    "distinct_names",
    "draws_ascii_only",
    "json_lines",
    "lenient_streams",
    "printable",
    "progress_bar",
    "rendered",
    "replaced_text",
    "reporting_interrupt",
    "room_for_first",
    "shape_text",
    "share_text",
    "shortened",
    "show",
    "show_error",
    "show_failure",
    "show_result",
    "show_text",
    "show_warning",
    "size_text",
    "sparkline",
    "speed_text",
    "terminal_width",
]
