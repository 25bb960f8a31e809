"""The command line, `tensorkeep`. One file per command; the logic is in the library and in pure files beside them.

- `commands/`: the commands, in groups.
- `_main`: the application; errors become exit codes.
- `inputs/`: what people type.
- `reports/`: what commands report, as lines and as JSON. Pure.
- `terminal/`: text on the terminal.
"""

from tensorkeep.cli._main import app, main

__all__ = [
    "app",
    "main",
]
