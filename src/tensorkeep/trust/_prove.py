"""`prove`: find the signatures of what is at a path, and check them by a policy's rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from tensorkeep.errors import SourceMissingError, TensorkeepError, TrustError
from tensorkeep.limits import MAX_SIGNATURES
from tensorkeep.signing import (
    IGNORED,
    ONLY_FILE,
    USUAL,
    Bundle,
    SignedFile,
    SignedHeader,
    Statement,
    is_signature,
    is_signed_by,
    parse_bundle,
    parse_statement,
    read_signature,
    signed_file_of,
)
from tensorkeep.texts import listed
from tensorkeep.transport import is_directory, join, list_names, split
from tensorkeep.trust._authorities import certified_signer
from tensorkeep.trust._keyless import signer_of
from tensorkeep.trust._policy import Rule
from tensorkeep.trust._proof import Proof


class _Signer(NamedTuple):
    """Who made a signature: as what they count, as what they are shown, and the key or identity that made it."""

    counted: str
    shown: str
    key: str


class _Signed(msgspec.Struct, frozen=True):
    """A signature that counts."""

    path: str
    signer: str
    shown: str
    statement: Statement
    is_of_one_file: bool


def prove(rule: Rule, path: str) -> Proof | None:
    """Check the signatures of what is at a path, and return what they prove; None if the rule demands none.

    Signatures of others are ignored, and so are damaged ones, as long as there are enough good ones.

    Args:
        rule: What the policy demands there.
        path: A path or URL.

    Raises:
        TrustError: If there are too few trusted signatures, or they contradict each other.
        MissingDependencyError: If a library is missing that checks them.
        TransportError: If the directory or a signature cannot be read.
    """
    if not rule.signatures:
        return None
    root, only = (path, None) if is_directory(path) else split(path)
    faults: list[str] = []
    found = list(_that_count(rule, root, only, faults))
    _refuse_contradictions(found, root)
    found = _one_for_each_signer(found, only)
    signers = {signed.signer for signed in found}
    if len(signers) < rule.signatures:
        wanted = [f"{key.kind} key {key.id[:16]}…" for key in rule.keys]
        wanted += [identity.identity for identity in rule.identities]
        wanted += [authority.name for authority in rule.authorities]
        raise TrustError(
            "too few trusted signatures" if found else "no trusted signature",
            path=path,
            expected=f"{rule.signatures} of {listed(wanted, 5)}",
            found=listed(faults, 5, "; ") or "no signature",
        )
    shown = tuple(sorted({signed.shown for signed in found}))
    return Proof(root, shown, _files_of(found, rule.signatures), _ignored_by_all(found), rule.digests)


def _that_count(rule: Rule, root: str, only: str | None, faults: list[str]) -> Iterator[_Signed]:
    """Yield the signatures by signers that the rule trusts; record why the others do not count.

    A key counts as one signer, even if several authorities certify it.
    """
    counted: dict[str, str] = {}
    for name in _names(root, only):
        try:
            bundle = parse_bundle(read_signature(join(root, name)), name)
            signer = _signer(rule, bundle, name)
            statement = parse_statement(bundle.payload, name)
        except SourceMissingError:
            continue
        except TensorkeepError as error:
            faults.append(str(error))
            continue
        if counted.setdefault(signer.key, signer.counted) != signer.counted:
            faults.append(f"the key of `{name}` counts already")
            continue
        is_of_one_file = ONLY_FILE in statement.files
        if is_of_one_file:
            file = signed_file_of(name)
            statement = msgspec.structs.replace(statement, files={file: statement.files[ONLY_FILE]})
        yield _Signed(name, signer.counted, signer.shown, statement, is_of_one_file)


def _names(root: str, only: str | None) -> list[str]:
    """Return the names that signatures may have, few enough to read all."""
    try:
        listing = list_names(root)
    except SourceMissingError:  # of a URL that is only what the names of files begin with
        listing = None
    usual = [USUAL] + ([f"{only}.sig"] if only else [])
    names = usual if listing is None else [name for name in listing if is_signature(name)]
    if len(names) > MAX_SIGNATURES:
        names = [name for name in usual if name in names]
    return names


def _signer(rule: Rule, bundle: Bundle, name: str) -> _Signer:
    """Return who made a signature; TrustError unless the rule trusts them."""
    if bundle.is_by_identity:
        identity = signer_of(bundle, rule.identities, name)
        return _Signer(identity, identity, identity)
    keys = [key for key in rule.keys if bundle.hint in {key.id, None}]
    if not keys and not bundle.certificates:
        raise TrustError(f"`{name}` is signed with another key", found=f"key {(bundle.hint or 'unknown')[:16]}…")
    for key in keys:
        if is_signed_by(bundle, key):
            return _Signer(key.id, key.id, key.id)
    if bundle.certificates and rule.authorities:
        authority, owner, key_id = certified_signer(bundle, rule.authorities, name)
        return _Signer(f"{rule.authorities.index(authority)} of the authorities", owner, key_id)
    named = "the key that it names" if bundle.hint else "a key that the policy trusts"
    raise TrustError(f"the signature in `{name}` is not by {named}")


def _refuse_contradictions(found: Iterable[_Signed], root: str) -> None:
    """Refuse signatures that disagree about a file: one of them may be of an earlier save."""
    first: dict[str, tuple[SignedFile, str]] = {}
    for signed in found:
        for name, file in signed.statement.files.items():
            other, path = first.setdefault(name, (file, signed.path))
            if (other.algorithm, other.digest) != (file.algorithm, file.digest):
                raise TrustError(
                    f"two signatures contradict each other about `{name}`",
                    path=root,
                    found=f"{path} and {signed.path}",
                    hint="Sign it again, and remove the old signature",
                )


def _one_for_each_signer(found: Iterable[_Signed], only: str | None) -> list[_Signed]:
    """Keep one signature of each signer, or all of single files: directories must not add up to another one."""
    by_signer: dict[str, list[_Signed]] = {}
    for signed in found:
        by_signer.setdefault(signed.signer, []).append(signed)
    return [each for signatures in by_signer.values() for each in _that_belong_together(signatures, only)]


def _that_belong_together(signatures: list[_Signed], only: str | None) -> list[_Signed]:
    naming = [signed for signed in signatures if only in signed.statement.files] or signatures
    whole = [signed for signed in naming if not signed.is_of_one_file]
    if whole:
        return [max(whole, key=lambda signed: len(signed.statement.files))]
    return [signed for signed in signatures if signed.is_of_one_file]


def _files_of(found: Iterable[_Signed], n_signers: int) -> dict[str, SignedFile]:
    """Return what enough signers say about each file; a header counts only if enough of them signed it too."""
    votes: dict[str, dict[SignedHeader | None, set[str]]] = {}
    files: dict[str, SignedFile] = {}
    for signed in found:
        for name, file in signed.statement.files.items():
            files[name] = file
            votes.setdefault(name, {}).setdefault(file.header, set()).add(signed.signer)
    agreed: dict[str, SignedFile] = {}
    for name, by_header in votes.items():
        if len(set().union(*by_header.values())) >= n_signers:
            headers = [header for header, signers in by_header.items() if header and len(signers) >= n_signers]
            header = headers[0] if len(headers) == 1 else None
            agreed[name] = SignedFile(files[name].algorithm, files[name].digest, header)
    return agreed


def _ignored_by_all(found: Iterable[_Signed]) -> tuple[str, ...]:
    ignored = [set(signed.statement.ignored) for signed in found]
    return tuple(sorted(set.intersection(*ignored) | set(IGNORED)))
