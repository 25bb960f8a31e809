"""What trusted signatures say of the files at a path, as checks and findings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Final, Literal

import msgspec

from tensorkeep.errors import SourceMissingError, TensorkeepError, TrustError, UnsupportedError
from tensorkeep.kinds import Check, Checks, Finding, OpenOptions, Place
from tensorkeep.kinds.registry import find_kind
from tensorkeep.kinds.safetensors import TensorFile, open_file
from tensorkeep.layout import stem_of_index
from tensorkeep.signing import SignedFile, files_below, has_link
from tensorkeep.transport import ByteRange, is_directory, is_remote, join, list_names, open_source, sizes_below, split
from tensorkeep.trust import ALGORITHMS, Policy, Proof, Rule, is_accounted_for, prove

_SAFETENSORS: Final = ".safetensors"


def refused_format(policy: Policy, place: Place) -> Checks | None:
    """Return the finding that a policy refuses to open what is at a place, which is then not parsed; None if not."""
    path = place.path or ""
    try:
        rule = policy.rule_for(path)
        found = find_kind(place)
    except (TrustError, UnsupportedError):  # no rule, so no signature counts; or several checkpoints, and a manifest
        return None
    try:
        rule.refuse_format(found.format, path, has_digests=found.kind.proves_reads)
    except TrustError as error:
        return Checks(findings=[_refusal("refused", error, path)])
    return None


def trusted_checks(found: Checks, policy: Policy, path: str, opened: ExitStack, *, is_decrypted: bool) -> Checks:
    """Add to the checks of what is at a path those that its signatures make possible.

    Every byte of every signed file is checked: by the digests of its tensors if its header was signed, else whole.

    If `is_decrypted`, `found` compares tensors in the clear; a signature proves only their encrypted bytes, so both
    are checked.
    """
    try:
        rule = policy.rule_for(path)
        found = _with_pickles_refused(found, rule, path)
        proof = prove(rule, path)
    except TrustError as error:
        return msgspec.structs.replace(found, findings=[*found.findings, _refusal("signature", error, path)])
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
            *(check for check in found.checks if check.file not in proven or (is_decrypted and check.tensor)),
            *(_once(check, is_decrypted) for checks in signed for check in checks.checks),
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


def _with_pickles_refused(found: Checks, rule: Rule, path: str) -> Checks:
    try:
        rule.refuse_pickled_parts(path, found.pickles)
    except TrustError as error:
        return msgspec.structs.replace(found, findings=[*found.findings, _refusal("refused", error, path)])
    return found


def _refusal(kind: Literal["signature", "refused"], error: TrustError, path: str) -> Finding:
    """Return what a policy decides about all files at a path."""
    name = os.path.basename(path.rstrip("/" + os.sep))
    return Finding(kind, error.message, name, expected=error.expected, found=error.found)


def _once(check: Check, is_decrypted: bool) -> Check:
    """Count no tensors for encrypted bytes whose tensors are checked in the clear, too."""
    return msgspec.structs.replace(check, n_tensors=0) if is_decrypted else check


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
        names = (set(_below_url(proof)) or read) if is_remote(path) else files_below(path)
    for name in sorted(set(names)):
        if not is_accounted_for(proof, name):
            yield Finding("unsigned", "no trusted signature names this file", name)


def _below_url(proof: Proof) -> Iterator[str]:
    """Yield what is below a URL, as far as the server or store lists it."""
    stored = sizes_below(proof.root)
    yield from _served(proof, "") if stored is None else stored


def _served(proof: Proof, folder: str) -> Iterator[str]:
    """Yield the files that a server lists, and folders in which nothing was signed: it could nest them forever."""
    for inner in _names_in(proof, folder) or ():
        name = folder + inner
        names = None if name in proof.files else _names_in(proof, f"{name}/")
        if names is None:
            yield name
        elif any(other.startswith(f"{name}/") for other in (*proof.files, *proof.ignored)):
            yield from _served(proof, f"{name}/")
        elif names:
            yield f"{name}/"


def _names_in(proof: Proof, folder: str) -> list[str] | None:
    """Return what a server lists in a folder; None if it is a file, or cannot be listed."""
    try:
        return list_names(join(proof.root, folder) if folder else proof.root)
    except SourceMissingError:
        return None


def _wrong(kind: str, message: str, name: str, expected: str | None = None, found: str | None = None) -> Checks:
    return Checks(findings=[Finding(kind, message, name, expected=expected, found=found)])  # type: ignore[arg-type]
