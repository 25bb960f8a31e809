"""Checks by the SHA-256 that somebody else keeps of files: the Hub, Git LFS, a download."""

from __future__ import annotations

from collections import Counter

import msgspec

from tensorkeep.digests import SHA256
from tensorkeep.kinds import Check, Checks, Files, Finding, Verification
from tensorkeep.transport import ByteRange, join, kept_sha256, open_source


def with_kept_sum(found: Checks, files: Files | None) -> Checks:
    """Add the SHA-256 that somebody keeps of a single file whose tensors have no checksums."""
    if not found.n_unprotected or files is None or len(files.names) != 1:
        return found
    (name,) = files.names
    source = open_source(join(files.directory, name), backend="pread")
    kept = kept_sha256(source)
    if kept is None:
        return found
    span = ByteRange(0, source.nbytes)
    check = Check(name, None, source, span, SHA256, bytes.fromhex(kept), found.n_unprotected, is_recorded=False)
    return msgspec.structs.replace(found, checks=[*found.checks, check], n_unprotected=0)


def answer_by_kept_sums(found: Checks, path: str) -> Verification:
    """Compare what the index records with what somebody else keeps, and read no data."""
    pointers = [finding for finding in found.findings if finding.kind == "pointer"]
    findings = [finding for finding in found.findings if finding.kind != "pointer"]
    n_answered, n_kept = 0, len(pointers)
    n_tensors: Counter[str] = Counter()
    for check in found.checks:
        n_tensors[check.file] += check.n_tensors
    for check in found.checks:
        kept = _kept_of(check)
        if kept == check.expected:
            n_kept += 1
            n_answered += n_tensors[check.file]
        elif kept is not None:
            findings.append(_another_file(check, kept))
    return Verification(
        path=path,
        findings=tuple(findings),
        n_shards=found.n_files,
        n_tensors=found.n_tensors,
        n_checked=0,
        n_unprotected=found.n_tensors - n_answered,
        nbytes_checked=0,
        n_sha256=0,
        n_kept=n_kept,
    )


def _kept_of(check: Check) -> bytes | None:
    """Return the SHA-256 that somebody keeps of a file whose own index records one."""
    if check.tensor is not None or check.algorithm is not SHA256 or not check.is_recorded:
        return None
    source = open_source(check.source, backend="pread") if isinstance(check.source, str) else check.source
    kept = kept_sha256(source)
    return None if kept is None else bytes.fromhex(kept)


def _another_file(check: Check, kept: bytes) -> Finding:
    expected, found = (check.algorithm.shown(digest) for digest in (check.expected, kept))
    message = "its SHA-256, as the Hub or Git LFS keeps it, is another than the index records"
    return Finding("sha256", message, check.file, expected=f"SHA-256 {expected}", found=found)
