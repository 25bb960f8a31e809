"""What a policy demands of a fetch: everything that arrives is what was signed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from tensorkeep.errors import TrustError
from tensorkeep.fetching._plan import Plan, Promise, Wanted
from tensorkeep.paths import is_inside
from tensorkeep.signing import SignedFile, holds_signature
from tensorkeep.transport import RemotePath
from tensorkeep.trust import Policy, Proof, prove

_VERSION_CONTROL: Final = frozenset({".git", ".hg", ".jj", ".svn"})
"""Directories whose files say what programs run. A file with the name `.git` leads to one."""

_OURS: Final = ".tensorkeep-"
"""Part of the names of what a fetch or a save keeps in a directory."""


def trusted_plan(plan: Plan, policy: Policy, path: RemotePath, *, companions: bool) -> Plan:
    """Return a plan in which each file must be what was signed; companions that nobody signed are left out.

    Unless the policy accepts parts, no signed file may be missing, and `companions` adds the other signed files of
    the directory, except version control, which runs what its files say.
    """
    rule = policy.rule_for(path)
    rule.refuse_format(plan.format, path)
    proof = prove(rule, path)
    plan = msgspec.structs.replace(plan, rule=rule)
    if proof is None:
        return plan
    if companions and plan.entry is None and not rule.partial:
        others = tuple(_others(plan, proof))
        files = (*plan.files, *(Wanted(name, path.joined(name), role=_role_of(name)) for name in others))
        plan = msgspec.structs.replace(plan, files=files, others=others)
    return msgspec.structs.replace(plan, files=tuple(_trusted(plan, proof, is_partial=rule.partial)))


def _role_of(name: str) -> Literal["hidden", "other"]:
    return "hidden" if any(part.startswith(".") for part in name.split("/")) else "other"


def _others(plan: Plan, proof: Proof) -> Iterator[str]:
    """Yield the names of the signed files of the directory that the plan lacks."""
    for name in sorted(proof.files.keys() - {wanted.name for wanted in plan.files}):
        if is_inside(name) and not any(part.lower() in _VERSION_CONTROL or _OURS in part for part in name.split("/")):
            yield name


def _trusted(plan: Plan, proof: Proof, *, is_partial: bool) -> Iterator[Wanted]:
    for wanted in plan.files:
        if wanted.name in proof.files:
            promise = _promise(wanted, proof.files[wanted.name], proof)
            is_optional = wanted.role in {"blocks", "listed", "guessed"}
            role = "other" if is_optional and not is_partial else wanted.role
            yield msgspec.structs.replace(wanted, promise=promise, role=role)
        elif holds_signature(proof.root, wanted.name):
            yield wanted
        elif wanted.role not in {"listed", "guessed"}:
            proof.file(wanted.name)


def _promise(wanted: Wanted, signed: SignedFile, proof: Proof) -> Promise:
    """Add what was signed of a file to what an index says of it; the digests in a signed header are all compared."""
    promise = msgspec.structs.replace(wanted.promise, is_signed=True)
    holds_tensors = wanted.role == "tensors"
    if signed.header is not None and holds_tensors:
        return msgspec.structs.replace(promise, nbytes=signed.header.nbytes, header=signed.header.blake3)
    if proof.needs_digests and holds_tensors:
        raise TrustError("the policy demands signed digests of each tensor", path=proof.root)
    if signed.algorithm == "sha256":
        return msgspec.structs.replace(promise, sha256=signed.digest.hex())
    if signed.algorithm == "blake3":
        return msgspec.structs.replace(promise, blake3=signed.digest.hex())
    raise TrustError("files signed with this algorithm cannot be fetched", path=proof.root, found=signed.algorithm)
