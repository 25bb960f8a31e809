"""The files of a checkpoint: missing, contradicting each other, or in nobody's list."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Final

import msgspec

from tensorkeep.checking._findings import CheckFinding, Severity, finding_about
from tensorkeep.errors import SourceMissingError, UnsupportedError
from tensorkeep.kinds import Finding, OpenOptions, Place
from tensorkeep.kinds.registry import find_kind
from tensorkeep.kinds.safetensors import strays_beside
from tensorkeep.layout import locate
from tensorkeep.texts import counted, listed

_numbered: Final = re.compile(r"(?P<stem>.*)-(?P<number>[0-9]{1,6})-of-(?P<n>[0-9]{1,6})\.[a-zA-Z0-9_]+").fullmatch

_ADVICE: Final = {
    "stray": "Move it away if it is not needed: programs that choose files by name may load it",
    "missing": "Get this file again from where the checkpoint was made",
}


def examine_files(path: str, options: OpenOptions) -> list[CheckFinding]:
    """Compare files, index and headers with each other; no tensor is read."""
    recording = msgspec.structs.replace(options, dangerous="record")
    with ExitStack() as opened:
        found = find_kind(Place(path, variant=options.variant, trusts_names=False)).checks(recording, [], opened)
        return [_finding_of(*same) for same in _grouped(found.findings)]


def _grouped(findings: Iterable[Finding]) -> Iterable[list[Finding]]:
    """Put together what is found of many tensors of a file in the same way."""
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        one = None if finding.tensor is None else (finding.kind, finding.shard, finding.expected, finding.found)
        groups.setdefault(one or id(finding), []).append(finding)
    return groups.values()


def examine_strays(directory: str, variant: str | None) -> Iterator[CheckFinding]:
    """Find files beside a checkpoint that look like parts of it, and that no index lists."""
    with suppress(SourceMissingError, UnsupportedError):
        location = locate(directory, variant)
        if location is not None and location.pending is None:
            yield from map(_finding_of, strays_beside(location.directory, location.stem))


def _finding_of(finding: Finding, *others: Finding) -> CheckFinding:
    """Return one finding for several of different tensors."""
    more = f", and {counted(len(others), 'tensor')} more" if others else ""
    is_pickle = not finding.is_damage and not finding.shard.endswith(".safetensors")
    severity: Severity = "error" if finding.is_damage else "note" if is_pickle else "warning"
    return finding_about(
        f"file-{finding.kind}",
        severity,
        f"{finding.shard}: {finding.message}{more}",
        [each.tensor for each in (finding, *others) if each.tensor is not None],
        expected=finding.expected,
        found=finding.found,
        advice=_ADVICE.get(finding.kind, "Get this file and the index again, both from one save"),
    )


def is_one_of_several(files: Iterable[str]) -> bool:
    """Whether the only file is a shard, so that most of the checkpoint is elsewhere."""
    names = list(files)
    found = _numbered(names[0]) if len(names) == 1 else None
    return found is not None and int(found["n"]) > 1


def examine_shard_numbers(files: Iterable[str]) -> Iterator[CheckFinding]:
    """Compare the numbers in the names of shards."""
    shards: dict[str, dict[int, set[int]]] = {}
    for name in files:
        if found := _numbered(name):
            shards.setdefault(found["stem"], {}).setdefault(int(found["n"]), set()).add(int(found["number"]))
    for stem, totals in shards.items():
        if len(totals) > 1:
            yield finding_about(
                "shard-totals",
                "error",
                f"the shards of `{stem:.200}` belong to several checkpoints",
                expected="one total in all their names",
                found=f"totals {listed(sorted(totals))}",
                advice="Get all shards and the index again, from one save",
            )
            continue
        n, numbers = next(iter(totals.items()))
        missing = [number for number in range(1, min(n, 100_000) + 1) if number not in numbers]
        if missing and 0 not in numbers:
            yield finding_about(
                "shard-missing",
                "error",
                f"shards of `{stem:.200}` are not in the index",
                expected=f"numbers 1 to {n:,}",
                found=f"none with the numbers {listed(missing)}",
                advice="Get the index and the missing shards again, from one save",
            )
