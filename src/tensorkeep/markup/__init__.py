"""HTML for notebooks, in which nothing from a file is markup. Pure.

- `_elements`: elements, in which everything but markup is escaped.
- `_tables`: tables of bounded length, folded and open.
"""

from tensorkeep.markup._elements import Markup, drawing, element
from tensorkeep.markup._tables import folded, page, table

__all__ = ["Markup", "drawing", "element", "folded", "page", "table"]
