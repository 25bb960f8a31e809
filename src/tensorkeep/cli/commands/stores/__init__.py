"""Commands for the steps of a run.

- `_list`: all steps, whole or not.
- `_prune`: remove those that no rule keeps.
"""

from tensorkeep.cli.commands.stores._list import list_steps
from tensorkeep.cli.commands.stores._prune import prune

__all__ = [
    "list_steps",
    "prune",
]
