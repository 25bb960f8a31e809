"""Compares a downloaded file with what was expected of it, and with the digests that it contains."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tensorkeep.checkpoint import digest_of_file, root_of_file, sha256_of, verify
from tensorkeep.errors import IntegrityError, TrustError
from tensorkeep.fetching._plan import Wanted
from tensorkeep.kinds import Finding, OpenOptions
from tensorkeep.kinds.safetensors import open_file
from tensorkeep.transport import ByteRange, open_source

_AS_STORED: Final = OpenOptions(as_stored=True)


def findings_in(path: str, wanted: Wanted) -> list[Finding]:
    """Find what is wrong with a file; it is read whole if there is a digest to compare."""
    found = list(_broken_promises(path, wanted))
    if wanted.role == "tensors":
        findings = verify(path, trust=False).findings
        found += [msgspec.structs.replace(finding, shard=wanted.name) for finding in findings if finding.is_damage]
    return found


def _broken_promises(path: str, wanted: Wanted) -> Iterable[Finding]:
    promise, name = wanted.promise, wanted.name
    if promise.header is not None and (found := open_file(path, _AS_STORED).header_digest()) != promise.header:
        yield _mismatch("foreign", "the shard belongs to another save", name, promise.header, found)
    if promise.blake3 is not None and (found := digest_of_file(path)) != promise.blake3:
        yield _mismatch("file", "the bytes differ from those that were saved", name, promise.blake3, found)
    if promise.sha256 is not None and (found := sha256_of(open_source(path))) != promise.sha256:
        yield _mismatch("sha256", "the SHA-256 differs", name, promise.sha256, found)
    if promise.root is not None and (found := root_of_file(path)) != promise.root:
        yield _mismatch("file", "the block digests are not those that were saved", name, promise.root, found)


def _mismatch(kind: str, message: str, name: str, expected: str, found: str) -> Finding:
    return Finding(kind, message, name, expected=f"{expected[:16]}…", found=f"{found[:16]}…")  # type: ignore[arg-type]


def damaged_spans(findings: Iterable[Finding]) -> list[ByteRange] | None:
    """Return the bytes to download again; None for the whole file."""
    spans = [finding.span for finding in findings if finding.kind != "sha256"]
    if not spans or None in spans:
        return None
    return [ByteRange(*span) for span in spans if span is not None]


def not_as_saved(findings: list[Finding], wanted: Wanted) -> IntegrityError:
    """Return the error for a file that is not what was saved, or what was signed."""
    shown = "; ".join(str(finding) for finding in findings[:5])
    kind, verb = (TrustError, "signed") if wanted.promise.is_signed else (IntegrityError, "saved")
    return kind(
        f"the downloaded file is not what was {verb}",
        path=str(wanted.path),
        tensor=next((finding.tensor for finding in findings if finding.tensor is not None), None),
        found=shown,
        hint="Nothing was replaced. Fetch again: only the damaged parts are downloaded",
    )


def missing_although_signed(wanted: Wanted) -> TrustError:
    """Return the error for a signed file that the server does not have, or does not give."""
    return TrustError(
        f"`{wanted.name}` was signed, and is missing or cannot be read",
        path=str(wanted.path),
        hint="partial = true in the policy accepts parts of what was signed",
    )
