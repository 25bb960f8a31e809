"""The command line, `tensorkeep`. One file per command; the logic is in the library and in pure files beside them.

- `inspect`, `slice`: what is in a checkpoint.
- `verify`, `diff`, `scan`: whether it is whole, how two differ, what it would run. Their exit codes are answers.
- `reshard`, `merge`, `edit`, `convert`: rewrite a checkpoint, combine several, change one in place, convert any kind.
- `export`: write any kind as a file of another format.
- `list`, `prune`: the steps of a store; remove those that no rule keeps.
- `fetch`, `serve`: download a checkpoint; serve a directory over HTTP.
- `stand_in`: `run` and `install-hook`, for programs that import safetensors.
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
