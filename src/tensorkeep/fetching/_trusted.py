"""What a policy demands of a fetch: everything that arrives is what was signed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tensorkeep.errors import TrustError
from tensorkeep.fetching._plan import Plan, Promise, Wanted
from tensorkeep.signing import SignedFile, is_signature
from tensorkeep.transport import RemotePath
from tensorkeep.trust import Policy, Proof, prove


def trusted_plan(plan: Plan, policy: Policy, path: RemotePath) -> Plan:
    """Return a plan in which each file must be what was signed; companions that nobody signed are left out."""
    rule = policy.rule_for(path)
    rule.refuse_format(plan.format, path)
    proof = prove(rule, path)
    if proof is None:
        return plan
    return msgspec.structs.replace(plan, files=tuple(_trusted(plan, proof)))


def _trusted(plan: Plan, proof: Proof) -> Iterator[Wanted]:
    for wanted in plan.files:
        if is_signature(wanted.name):
            yield wanted
        elif wanted.name in proof.files:
            promise = _promise(wanted, proof.files[wanted.name], proof)
            yield msgspec.structs.replace(wanted, promise=promise)
        elif wanted.role not in {"listed", "guessed"}:
            proof.file(wanted.name)


def _promise(wanted: Wanted, signed: SignedFile, proof: Proof) -> Promise:
    """Add what was signed of a file to what an index says of it; the digests in a signed header are all compared."""
    promise, holds_tensors = wanted.promise, wanted.role == "tensors"
    if signed.header is not None and holds_tensors:
        return msgspec.structs.replace(promise, nbytes=signed.header.nbytes, header=signed.header.blake3)
    if proof.needs_digests and holds_tensors:
        raise TrustError("the policy demands signed digests of each tensor", path=proof.root)
    if signed.algorithm == "sha256":
        return msgspec.structs.replace(promise, sha256=signed.digest.hex())
    if signed.algorithm == "blake3":
        return msgspec.structs.replace(promise, blake3=signed.digest.hex())
    raise TrustError("files signed with this algorithm cannot be fetched", path=proof.root, found=signed.algorithm)
