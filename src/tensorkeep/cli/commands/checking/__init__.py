"""Commands that ask something. Their exit codes are answers.

- `_check`: do these weights make sense?
- `_verify`: is every byte as it was saved?
- `_diff`: are two checkpoints equal?
- `_scan`: would files run something if others loaded them?
"""

from tensorkeep.cli.commands.checking._check import check
from tensorkeep.cli.commands.checking._diff import diff
from tensorkeep.cli.commands.checking._scan import scan
from tensorkeep.cli.commands.checking._verify import verify

__all__ = [
    "check",
    "diff",
    "scan",
    "verify",
]
