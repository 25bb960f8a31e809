"""All commands, one file each. What they do is in the library, and what they share in the folders beside this one.

- `_groups`: their names, and the groups in which the help shows them.
- `looking/`: `inspect`, `slice`, `view`.
- `checking/`: `verify`, `diff`, `scan`. Their exit codes are answers.
- `writing/`: `convert`, `export`, `reshard`, `join`, `edit`, `add-block-digests`, `patch`.
- `merging/`: `merge average`, `merge ema` …, `lora add`, `lora extract`.
- `transforming/`: `transform stack-experts`, `transform vocabulary` …
- `stores/`: `list`, `prune`.
- `sharing/`: `fetch`, `serve`.
- `signing/`: `keygen`, `sign`.
- `programs/`: `run`, `install-hook`, for programs that import safetensors.
"""

from tensorkeep.cli.commands._groups import FAMILIES, GROUPS, Command
from tensorkeep.cli.commands.programs import Program

__all__ = [
    "FAMILIES",
    "GROUPS",
    "Command",
    "Program",
]
