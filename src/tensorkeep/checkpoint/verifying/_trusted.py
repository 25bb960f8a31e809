"""What trusted signatures say of the files at a path, as checks and findings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Final

import msgspec

from tensorkeep.errors import SourceMissingError, TensorkeepError, TrustError
from tensorkeep.kinds import Check, Checks, Finding, OpenOptions
from tensorkeep.kinds.safetensors import TensorFile, open_file
from tensorkeep.layout import stem_of_index
from tensorkeep.signing import SignedFile, files_below, has_link, is_ignored, is_signature
from tensorkeep.transport import ByteRange, is_directory, is_remote, join, list_names, open_source, split
from tensorkeep.trust import ALGORITHMS, Policy, Proof, Rule, prove

_SAFETENSORS: Final = ".safetensors"


def trusted_checks(found: Checks, policy: Policy, path: str, opened: ExitStack) -> Checks:
    """Add to the checks of what is at a path those that its signatures make possible.

    Every byte of every signed file is checked: by the digests of its tensors if its header was signed, else whole.
    """
    try:
        rule = policy.rule_for(path)
        proof = prove(rule, path)
    except TrustError as error:
        name = os.path.basename(path.rstrip("/" + os.sep))
        finding = Finding("signature", error.message, name, expected=error.expected, found=error.found)
        return msgspec.structs.replace(found, findings=[*found.findings, finding])
    if proof is None:
        return found
    read = {check.file for check in found.checks}
    if not is_directory(path) and stem_of_index(split(path)[1]) is None:  # a file alone
        read.add(split(path)[1])
        proof = msgspec.structs.replace(proof, files={name: proof.files[name] for name in read & proof.files.keys()})
    signed = [_of_file(proof, rule, name, file, opened) for name, file in sorted(proof.files.items())]
    proven = {check.file for checks in signed for check in checks.checks}
    is_whole = not any(checks.findings for checks in signed)
    return msgspec.structs.replace(
        found,
        checks=[
            *(check for check in found.checks if check.file not in proven),
            *(check for checks in signed for check in checks.checks),
        ],
        findings=[
            *found.findings,
            *(finding for checks in signed for finding in checks.findings),
            *_unsigned(proof, rule, path, read),
        ],
        n_unprotected=0 if is_whole else found.n_unprotected,
        signers=proof.signers,
        n_others=sum(not any(check.tensor for check in checks.checks) for checks in signed),
    )


def _of_file(proof: Proof, rule: Rule, name: str, signed: SignedFile, opened: ExitStack) -> Checks:
    try:
        return _expected_checks(proof, rule, name, signed, opened)
    except SourceMissingError:
        return Checks() if rule.partial else _wrong("missing", "a signed file does not exist", name)
    except TrustError as error:
        return _wrong("file", error.message, name, error.expected, error.found)
    except TensorkeepError as error:
        return _wrong("unreadable", str(error), name)


def _expected_checks(proof: Proof, rule: Rule, name: str, signed: SignedFile, opened: ExitStack) -> Checks:
    """Return the checks of a file that can be opened, after comparing its header."""
    path = join(proof.root, name)
    if not rule.links and has_link(proof.root, name):
        return _wrong("unsigned", "a symbolic link is in the place of a signed file", name)
    if signed.header is not None:
        file = opened.enter_context(open_file(path, OpenOptions(as_stored=True)))
        proof.check_header(name, file.source.nbytes, bytes.fromhex(file.header_digest()))
        return _tensors_of(file, name)
    if rule.digests and name.endswith(_SAFETENSORS):
        return _wrong("unsigned", "its tensors have no signed digests, which the policy demands", name)
    whole = ByteRange(0, open_source(path, backend="pread").nbytes)
    return Checks([Check(name, None, path, whole, ALGORITHMS[signed.algorithm], signed.digest, 0)])


def _tensors_of(file: TensorFile, name: str) -> Checks:
    checks = file.checks()
    return msgspec.structs.replace(
        checks, checks=[msgspec.structs.replace(check, file=name) for check in checks.checks]
    )


def _unsigned(proof: Proof, rule: Rule, path: str, read: set[str]) -> Iterator[Finding]:
    """Find files that no signature names: all below a directory, or those that hold the tensors."""
    if rule.additions:
        return
    names: Iterable[str] = read
    if is_directory(path):
        names = (list_names(path) or read) if is_remote(path) else files_below(path)
    for name in sorted(set(names)):
        is_left_out = is_signature(name) or is_ignored(name, proof.ignored) or _is_directory(path, name)
        if name not in proof.files and not is_left_out:
            yield Finding("unsigned", "no trusted signature names this file", name)


def _is_directory(path: str, name: str) -> bool:
    """Whether a name in the listing of a server is a directory's."""
    return is_remote(path) and is_directory(join(path, name))


def _wrong(kind: str, message: str, name: str, expected: str | None = None, found: str | None = None) -> Checks:
    return Checks(findings=[Finding(kind, message, name, expected=expected, found=found)])  # type: ignore[arg-type]
