"""Run the checks of any kind of file: in parallel, in bounded memory, with every fault as a finding."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tensorkeep.checkpoint.verifying._by_executor import sums_by
from tensorkeep.digests import SHA256
from tensorkeep.errors import FormatError, IntegrityError, RangeNotServedError, TensorkeepError
from tensorkeep.kinds import Check, Checks, Finding, Verification
from tensorkeep.parallel import ProgressMeter, batches_of, parallel_map
from tensorkeep.transport import open_source, sum_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

_MAX_THREADS: Final = 8
"""Hashing threads: each keeps a core busy, and more would only make a disk seek."""


def run_checks(
    found: Checks,
    path: str,
    *,
    sample: float | None = None,
    seed: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
) -> Verification:
    """Run all checks, or those of a random sample of tensors."""
    checks = found.checks if sample is None else _drawn(found.checks, sample, seed)
    meter = ProgressMeter(progress, sum(len(check.span) for check in checks))
    n_sha256 = sum(check.tensor is None and check.algorithm is SHA256 for check in checks)
    return Verification(
        path=path,
        findings=(*found.findings, *find_damage(checks, meter, executor=executor)),
        n_shards=found.n_files,
        n_tensors=found.n_tensors,
        n_checked=found.n_checked + sum(check.n_tensors for check in checks),
        n_unprotected=found.n_unprotected,
        nbytes_checked=sum(len(check.span) for check in checks if not _is_second(check)),
        n_sha256=n_sha256,
        n_others=found.n_others,
        signers=found.signers,
    )


def _is_second(check: Check) -> bool:
    """Whether a check hashes bytes that tensor digests cover too: the SHA-256 by which other systems name a file."""
    return check.tensor is None and check.algorithm is SHA256 and not check.n_tensors


def _drawn(checks: Sequence[Check], share: float, seed: int | None) -> list[Check]:
    """Draw tensors at random until they make up `share` of the bytes, and return them in order."""
    import random  # 4 ms, which opening need not pay

    tensors = [check for check in checks if check.tensor is not None or check.n_tensors]
    wanted = share * sum(len(check.span) for check in tensors)
    places = list(range(len(tensors)))
    random.Random(seed).shuffle(places)  # noqa: S311 - a sample, no secret
    drawn: list[int] = []
    nbytes = 0
    for place in places:
        if nbytes >= wanted:
            break
        drawn.append(place)
        nbytes += len(tensors[place].span)
    return [tensors[place] for place in sorted(drawn)]


def find_damage(
    checks: Sequence[Check], meter: ProgressMeter, *, n_threads: int = _MAX_THREADS, executor: Executor | None = None
) -> list[Finding]:
    """Return what differs from its checksum: tensors first, in byte order."""
    summed, rest = ({}, checks) if executor is None else sums_by(executor, checks, meter)
    n_threads = min(n_threads, os.cpu_count() or 1)
    batches = batches_of(rest, lambda check: len(check.span))
    share = sum(len(check.span) for check in rest) // n_threads

    def run(batch: list[Check]) -> list[Finding]:
        # A check larger than a thread's share would keep one core busy after the others have finished.
        return [found for check in batch if (found := _run(check, meter, parallel=len(check.span) > share))]

    found = parallel_map(run, batches, n_threads=min(n_threads, len(batches)), meter=meter)
    by_workers = (finding for place, sum_ in summed.items() if (finding := _compared(checks[place], sum_)))
    return sorted(
        (*by_workers, *(finding for findings in found for finding in findings)),
        key=lambda finding: (finding.tensor is None, finding.shard, finding.span or (0, 0)),
    )


def _run(check: Check, meter: ProgressMeter, *, parallel: bool) -> Finding | None:
    try:
        source = open_source(check.source, backend="pread") if isinstance(check.source, str) else check.source
        return _compared(check, sum_of(source, check.span, check.algorithm, parallel=parallel, on_read=meter.add))
    except (TensorkeepError, OSError) as error:
        return _compared(check, error)


def _compared(check: Check, digest: bytes | TensorkeepError | OSError) -> Finding | None:
    """Return what is wrong with bytes that have a checksum, or that cannot be read."""
    span = None if check.tensor is None else (check.span.start, check.span.stop)
    if isinstance(digest, RangeNotServedError):  # says nothing about the bytes
        raise digest
    if isinstance(digest, FormatError | IntegrityError):  # compressed bytes, which have a checksum of their own
        message = digest.message if check.tensor is None else f"tensor `{check.tensor}`: {digest.message}"
        return Finding(
            "file" if check.tensor is None else "data",
            message,
            check.file,
            check.tensor,
            span,
            digest.expected,
            digest.found,
        )
    if isinstance(digest, Exception):
        message = str(digest) if check.tensor is None else f"tensor `{check.tensor}` cannot be read: {digest}"
        return Finding("unreadable", message, check.file, check.tensor, span)
    if digest == check.expected:
        return None
    expected, actual = (
        f"{check.algorithm.name} {check.algorithm.shown(check.expected)}",
        check.algorithm.shown(digest),
    )
    if check.tensor is not None:
        message = f"the bytes of tensor `{check.tensor}` are not those that were saved"
        return Finding("data", message, check.file, check.tensor, span, expected, actual)
    if check.algorithm is SHA256:
        return Finding("sha256", "its SHA-256 differs", check.file, expected=expected, found=actual)
    message = "its bytes are not those that were saved"
    return Finding("file", message, check.file, expected=expected, found=actual)
