"""The command line, `tensorkeep`. One file per command; everything that is hard stands in pure files beside them.

- `inspect`: what is in a checkpoint.
- `slice`: what is in a checkpoint.
- `verify`: whether it is whole, and what sets two apart. Their exit codes are answers.
- `diff`: whether it is whole, and what sets two apart. Their exit codes are answers.
- `reshard`: written anew, several as one, changed in place.
- `merge`: written anew, several as one, changed in place.
- `edit`: written anew, several as one, changed in place.
- `list`: the steps of a store.
- `fetch`: a remote checkpoint on the disk.
- `convert`: a checkpoint of any kind as safetensors, and what became of it.
- `reports/`: what commands report. Pure.
- `scan`: what files would run if others loaded them.
- `serve`: a directory over HTTP, and who read what.
- `_main`: the application they are registered in; errors to exit codes.
- `inputs/`: what people type.
- `terminal/`: text on the terminal.
"""

from tensorkeep.cli._main import app, main

__all__ = [
    "app",
    "main",
]
