"""Steps that orbax left in the directory of a store: they are restored until the store has newer ones."""

from __future__ import annotations

import os
from typing import Final

from tensorkeep.errors import as_transport_error

_MARK: Final = "_CHECKPOINT_METADATA"
"""The file that orbax writes into the directory of a step when it is complete."""

_DEFAULT: Final = "default"


def older_steps(root: str) -> list[int]:
    """Return the numbers of complete steps of orbax."""
    with as_transport_error("could not read the directory", root):
        names = os.listdir(root) if os.path.isdir(root) else []
    return sorted(int(name) for name in names if name.isdecimal() and os.path.exists(os.path.join(root, name, _MARK)))


def older_path(root: str, step: int, item: str | None) -> str:
    """Return the directory of an item of such a step."""
    return os.path.join(root, str(step), item or _DEFAULT)
