"""Text on the terminal.

- `_text`: values as people read them; columns of styled text. Pure.
- `_columns`: values as people read them; columns of styled text. Pure.
- `_render`: the only file that prints.
"""

from tensorkeep.cli.terminal._columns import Column, Line, Span, Style, columns
from tensorkeep.cli.terminal._render import (
    OutputClosedError,
    draws_ascii_only,
    make_streams_lenient,
    progress_bar,
    show,
    show_error,
    show_text,
    show_warning,
    terminal_width,
)
from tensorkeep.cli.terminal._text import printable, shape_text, share_text, shortened, size_text, tensors_text

__all__ = [
    "Column",
    "Line",
    "OutputClosedError",
    "Span",
    "Style",
    "columns",
    "draws_ascii_only",
    "make_streams_lenient",
    "printable",
    "progress_bar",
    "shape_text",
    "share_text",
    "shortened",
    "show",
    "show_error",
    "show_text",
    "show_warning",
    "size_text",
    "tensors_text",
    "terminal_width",
]
