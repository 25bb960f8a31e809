"""What has arrived, held against what was promised of it, and against the digests that it brings along."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tensorkeep.checkpoint import digest_of_file, sha256_of, verify
from tensorkeep.errors import IntegrityError
from tensorkeep.fetching._plan import Wanted
from tensorkeep.kinds import Finding
from tensorkeep.kinds.safetensors import header_digest
from tensorkeep.tensors import open_file
from tensorkeep.transport import ByteRange, open_source


def findings_in(path: str, wanted: Wanted) -> list[Finding]:
    """Find what is wrong with a file; all of it is read, unless nothing is known of its bytes."""
    found = list(_broken_promises(path, wanted))
    if wanted.role == "tensors":
        findings = verify(path).findings
        found += [msgspec.structs.replace(finding, shard=wanted.name) for finding in findings if finding.is_damage]
    return found


def _broken_promises(path: str, wanted: Wanted) -> Iterable[Finding]:
    promise, name = wanted.promise, wanted.name
    if promise.header is not None and (found := header_digest(open_file(path))) != promise.header:
        yield _another("foreign", "the shard is of another save", name, promise.header, found)
    if promise.blake3 is not None and (found := digest_of_file(path)) != promise.blake3:
        yield _another("file", "its bytes are not those that were saved", name, promise.blake3, found)
    if promise.sha256 is not None and (found := sha256_of(open_source(path))) != promise.sha256:
        yield _another("sha256", "its SHA-256 is another", name, promise.sha256, found)


def _another(kind: str, message: str, name: str, expected: str, found: str) -> Finding:
    return Finding(kind, message, name, expected=f"{expected[:16]}…", found=f"{found[:16]}…")  # type: ignore[arg-type]


def damaged_spans(findings: Iterable[Finding]) -> list[ByteRange] | None:
    """Return the bytes that must be asked for again; None for all of the file."""
    spans = [finding.span for finding in findings if finding.kind != "sha256"]
    if not spans or None in spans:
        return None
    return [ByteRange(*span) for span in spans if span is not None]


def not_as_saved(findings: list[Finding], wanted: Wanted) -> IntegrityError:
    """Return the error for a file that is not the one that was saved."""
    shown = "; ".join(str(finding) for finding in findings[:5])
    return IntegrityError(
        "what came is not what was saved",
        path=str(wanted.path),
        tensor=next((finding.tensor for finding in findings if finding.tensor is not None), None),
        found=shown,
        hint="Nothing was replaced. Fetch again: what is damaged is asked for again",
    )
