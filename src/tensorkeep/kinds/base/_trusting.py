"""Policies, which are imported only when somebody asks for one: most who open a checkpoint do not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from tensorkeep.errors import UnsupportedError
from tensorkeep.kinds.base._options import OpenOptions
from tensorkeep.on_demand import imported
from tensorkeep.transport import Openable
from tensorkeep.variables import TRUST

if TYPE_CHECKING:
    from tensorkeep.trust import Policy, Trust


def policy_for(trust: Trust | None, path: str | os.PathLike[str] | None) -> Policy | None:
    """Return the given policy, or else the one that the environment names; None for False, or without either."""
    chosen = trust if trust is not None else _of_environment()
    if chosen is None or chosen is False:
        return None
    policy_type: type[Policy] = imported("tensorkeep.trust:Policy")
    return policy_type.of(chosen, checkpoint=None if path is None else os.fspath(path))


def _of_environment() -> str | None:
    """Return the path in the environment: whose working directory it is must not decide which policy that means."""
    path = os.environ.get(TRUST) or None
    if path is not None and not os.path.isabs(path):
        raise UnsupportedError(f"{TRUST} is not an absolute path", expected="such as /etc/models.toml", found=path)
    return path


def by_environment(options: OpenOptions, target: Openable) -> OpenOptions:
    """Return options for a safetensors file under the policy of the environment, if there is one."""
    path = os.fspath(target) if isinstance(target, str | os.PathLike) else None
    policy = policy_for(None, path)
    if policy is None:
        return options
    if path is None:
        raise UnsupportedError("bytes have no signature beside them", hint=f"{TRUST} demands one")
    rule = policy.rule_for(path)
    rule.refuse_format("safetensors", path)
    proof = imported("tensorkeep.trust:prove")(rule, path)
    return msgspec.structs.replace(options, check=True, verify=options.verify or rule.digests, proof=proof)
