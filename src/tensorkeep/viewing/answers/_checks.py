"""Whether a checkpoint is whole, and what other programs would run of it."""

from __future__ import annotations

from typing import Any

import msgspec

from tensorkeep.checkpoint import verify
from tensorkeep.parallel import Progress
from tensorkeep.scanner import scan


def verification(
    path: str, variant: str | None, engine: str | None, places: dict[str, int], progress: Progress
) -> dict[str, Any]:
    """Compare every byte with the digests that were saved."""
    found = verify(path, variant=variant, engine=engine, progress=progress)
    return {
        "status": "damaged" if found.is_damaged else "whole" if found.is_whole else "unverifiable",
        "findings": [
            {
                "kind": each.kind,
                "message": each.message,
                "file": each.shard,
                "tensor": each.tensor,
                "t": None if each.tensor is None else places.get(each.tensor),
                "span": each.span,
                "expected": each.expected,
                "found": each.found,
            }
            for each in found.findings
        ],
        "n_files": found.n_shards,
        "n_tensors": found.n_tensors,
        "n_checked": found.n_checked,
        "n_unprotected": found.n_unprotected,
        "nbytes_checked": found.nbytes_checked,
    }


def scan_report(path: str, progress: Progress) -> dict[str, Any]:
    """List what other programs would run."""
    report = scan(path, progress=progress)
    return {
        "verdict": report.verdict,
        "n_skipped": report.n_skipped,
        "files": [{"verdict": file.verdict, **msgspec.to_builtins(file)} for file in report.files],
    }
