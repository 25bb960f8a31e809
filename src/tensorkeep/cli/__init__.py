"""The command line, `tensorkeep`. One file per command; the logic is in the library and in pure files beside them.

- `commands/`: the commands, in groups.
- `_command`: what commands have in common: where a result goes.
- `_application`: all commands under one name.
- `_main`: runs it; errors become messages and exit statuses.
- `help/`: what `--help` shows.
- `inputs/`: what people type.
- `reports/`: what commands report, as lines and as JSON. Pure.
- `terminal/`: text on the terminal.
"""

from tensorkeep.cli._application import app
from tensorkeep.cli._main import main

__all__ = [
    "app",
    "main",
]
