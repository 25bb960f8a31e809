"""Commands that sign. `verify --trust` checks what they sign.

- `_password`: the password of a key.
- `_keygen`: `keygen`.
- `_sign`: `sign`.
"""

from tensorkeep.cli.commands.signing._keygen import keygen
from tensorkeep.cli.commands.signing._sign import sign

__all__ = [
    "keygen",
    "sign",
]
