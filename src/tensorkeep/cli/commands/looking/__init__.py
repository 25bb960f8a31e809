"""Commands that show what is in a checkpoint.

- `_inspect`: names, shapes, dtypes, sizes and metadata, from headers alone.
- `_slice`: a part of one tensor, reading only that part.
- `_view`: all of it in a browser.
"""

from tensorkeep.cli.commands.looking._inspect import inspect
from tensorkeep.cli.commands.looking._slice import slice_tensor
from tensorkeep.cli.commands.looking._view import view

__all__ = [
    "inspect",
    "slice_tensor",
    "view",
]
