"""Steps that orbax left in the directory of a store: they are restored until the store has newer ones."""

from __future__ import annotations

import os
import re
from typing import Final

from tensorkeep.errors import as_transport_error

_MARK: Final = "_CHECKPOINT_METADATA"
"""The file that orbax writes into the directory of a step when it is complete."""

_DEFAULT: Final = "default"

_step_named: Final = re.compile(r"(?:.*_)?(\d{1,19})", re.ASCII).fullmatch
"""The directory of a step: its number, perhaps with zeros before it (`step_format_fixed_length`) or a prefix
(`step_prefix`)."""


def older_steps(root: str) -> list[int]:
    """Return the numbers of complete steps of orbax in a local directory."""
    return sorted(_directories(root))


def older_path(root: str, step: int, item: str | None) -> str:
    """Return the directory of an item of such a step."""
    return os.path.join(root, _directories(root)[step], item or _DEFAULT)


def _directories(root: str) -> dict[int, str]:
    """Return the number of each step to the name of its directory; of two names, the one without a prefix counts."""
    with as_transport_error("could not read the directory", root):
        names = os.listdir(root) if os.path.isdir(root) else []
    longest_first = sorted(names, key=len, reverse=True)
    numbered = [(int(found[1]), name) for name in longest_first if (found := _step_named(name))]
    return {number: name for number, name in numbered if os.path.exists(os.path.join(root, name, _MARK))}
