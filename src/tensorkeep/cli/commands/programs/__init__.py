"""Commands for programs that import safetensors.

- `_run`: run a program with tensorkeep in its place.
- `_hook`: let an environment variable do so.
"""

from tensorkeep.cli.commands.programs._hook import install_hook
from tensorkeep.cli.commands.programs._run import AS_TYPED, Program, run

__all__ = [
    "AS_TYPED",
    "Program",
    "install_hook",
    "run",
]
