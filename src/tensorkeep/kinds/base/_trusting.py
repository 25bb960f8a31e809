"""Policies, which are imported only when somebody asks for one: most who open a checkpoint do not."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tensorkeep.on_demand import imported

if TYPE_CHECKING:
    from tensorkeep.trust import Policy, Trust

_VARIABLE: Final = "TENSORKEEP_TRUST"
"""The environment variable that names the policy of whatever is opened without one."""


def policy_for(trust: Trust | None, path: str | os.PathLike[str] | None) -> Policy | None:
    """Return the given policy, or else the one that the environment names; None without either."""
    chosen = trust if trust is not None else os.environ.get(_VARIABLE) or None
    if chosen is None:
        return None
    read: Callable[[Any, str | None], Policy] = imported("tensorkeep.trust:policy_outside")
    return read(chosen, None if path is None else os.fspath(path))
