"""All commands, one file each. What they do is in the library, and what they share in the folders beside this one.

- `_groups`: their names, and the groups in which the help shows them.
- `looking/`: `inspect`, `slice`, `view`.
- `checking/`: `verify`, `diff`, `scan`. Their exit codes are answers.
- `writing/`: `convert`, `export`, `reshard`, `merge`, `edit`, `patch`.
- `stores/`: `list`, `prune`.
- `sharing/`: `fetch`, `serve`.
- `programs/`: `run`, `install-hook`, for programs that import safetensors.
"""

from tensorkeep.cli.commands._groups import GROUPS, Command
from tensorkeep.cli.commands.programs import Program

__all__ = [
    "GROUPS",
    "Command",
    "Program",
]
