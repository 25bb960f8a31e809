"""What people see of values from files: texts made harmless, sizes, and HTML for notebooks. Pure.

- `_texts`: sizes, shares and shapes as people read them, and text from files made harmless.
- `_elements`: HTML, in which everything but markup is escaped.
- `_tables`: tables of bounded length, folded and open.
"""

from tensorkeep.markup._elements import Markup, drawing, element
from tensorkeep.markup._tables import folded, page, table
from tensorkeep.markup._texts import printable, shape_text, share_text, shortened, size_text, speed_text

__all__ = [
    "Markup",
    "drawing",
    "element",
    "folded",
    "page",
    "printable",
    "shape_text",
    "share_text",
    "shortened",
    "size_text",
    "speed_text",
    "table",
]
