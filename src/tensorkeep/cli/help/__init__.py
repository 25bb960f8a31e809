"""What `--help` shows, and the reference page about the command line.

- `_pages`: a command as a page: how it is used, what it does, its arguments and options. Pure.
- `_lines`: a page as lines of a terminal. Pure.
- `_classes`: commands whose help is such a page.
"""

from tensorkeep.cli.help._classes import PlainCommand, PlainGroup
from tensorkeep.cli.help._pages import HelpPage, Row, Section, page_of

__all__ = [
    "HelpPage",
    "PlainCommand",
    "PlainGroup",
    "Row",
    "Section",
    "page_of",
]
