"""What `verify` found, as lines for people and as an object for programs. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tensorkeep.cli.terminal import Line, size_text, tensors_text

if TYPE_CHECKING:
    from tensorkeep.kinds import Finding, Verification


Status = Literal["whole", "damaged", "unverifiable"]
"""`"unverifiable"`: nothing is wrong that can be seen, and not all that was asked for carries digests."""

_ADVICE: Final = {
    "missing": "Get this file again from where the checkpoint came from",
    "truncated": "Get this file again from where the checkpoint came from",
    "header": "Get this file again from where it came from",
    "foreign": "Get all files of one save again, the index with them",
    "absent": "Get the index and this file again, both of one save",
    "duplicate": "Get the index and this file again, both of one save",
    "data": "Get this file again from where it came from; the tensors that are not listed are as they were saved",
    "unreadable": "Look at the disk and the permissions of this file, then verify again",
    "state": "Get this file again from where it came from; each tensor in it can still be read by its own name",
    "sha256": "Get this file again from where it came from",
    "file": "Get this file again from where it came from, or take an older checkpoint",
    "stray": "Move it away if nobody needs it: programs that take files by their names may load it",
}


class Verdict(msgspec.Struct, frozen=True):
    """A verification, with what only its caller knows.

    Attributes:
        verification: What was checked and found.
        n_asked: Tensors that were asked for, or None for all.
        seconds: How long it took.
        is_finished: Whether it is one checkpoint, and not what many ranks left of one.
    """

    verification: Verification
    n_asked: int | None
    seconds: float
    is_finished: bool = True

    @property
    def status(self) -> Status:
        """What it comes to."""
        if self.verification.is_damaged:
            return "damaged"
        n_missing = 0 if self.n_asked is None else self.n_asked - self.verification.n_checked
        return "unverifiable" if self.verification.n_unprotected or n_missing else "whole"


def verdict_lines(verdict: Verdict) -> Iterator[Line]:
    """Write what was found, and then what it comes to."""
    for finding in verdict.verification.findings:
        yield from _finding_lines(finding)
        yield []
    if verdict.status == "damaged":
        n_damaged = sum(finding.is_damage for finding in verdict.verification.findings)
        damage = "1 place" if n_damaged == 1 else f"{n_damaged:,} places"
        yield [("damaged", "error"), (f": {damage}; {_extent(verdict)}", "")]
    elif verdict.status == "whole":
        is_part = verdict.verification.n_checked < verdict.verification.n_tensors
        yield [("no damage" if is_part else "whole", "title"), (f": {_extent(verdict)}", "")]
    else:
        yield from _unverifiable_lines(verdict)


def _finding_lines(finding: Finding) -> Iterator[Line]:
    place = "" if finding.span is None else f", bytes {finding.span[0]:,} to {finding.span[1]:,}"
    facts = [f"{label} {fact}" for label, fact in (("expected", finding.expected), ("found", finding.found)) if fact]
    message = f"{finding.message}: {', '.join(facts)}" if facts else finding.message
    yield [
        (finding.kind, "error" if finding.is_damage else "warning"),
        (f"  {finding.shard}", "title"),
        (place, "dim"),
    ]
    yield [(f"  {message}", "")]
    yield [(f"  {_ADVICE[finding.kind]}", "dim")]


def _unverifiable_lines(verdict: Verdict) -> Iterator[Line]:
    done = verdict.verification
    n_wanted = done.n_tensors if verdict.n_asked is None else verdict.n_asked
    n_unknown = done.n_unprotected or n_wanted - done.n_checked
    yield [
        ("not verified", "warning"),
        (f": {n_unknown:,} of {n_wanted:,} tensors carry no digest; of these only the structure was checked", ""),
    ]
    command = "reshard" if verdict.is_finished else "convert"
    yield [(f"`tensorkeep {command} {shlex.quote(done.path)} DIRECTORY` writes a copy that has digests", "")]


def _extent(verdict: Verdict) -> str:
    """Say how much was checked, and how fast."""
    done = verdict.verification
    if not done.n_shards and not done.n_others:
        return "nothing else could be checked" if done.findings else "index, no tensors"
    files = "1 file" if done.n_shards == 1 else f"{done.n_shards:,} shards"
    is_part = done.n_checked < done.n_tensors
    tensors = f"{done.n_checked:,} of {done.n_tensors:,} tensors" if is_part else tensors_text(done.n_tensors)
    speed = size_text(int(done.nbytes_checked / max(verdict.seconds, 1e-9)))
    sums = f", SHA-256 of {done.n_sha256:,} files" if done.n_sha256 else ""
    sums += f", {done.n_others:,} other files" if done.n_others else ""
    checked = f"{size_text(done.nbytes_checked)} checked in {verdict.seconds:.2f} s ({speed}/s)"
    return f"{files}, {tensors}{sums}, {checked}"


def verdict_members(verdict: Verdict) -> dict[str, object]:
    """Give the same for programs."""
    done = verdict.verification
    return {
        "path": done.path,
        "status": verdict.status,
        "n_shards": done.n_shards,
        "n_tensors": done.n_tensors,
        "n_checked": done.n_checked,
        "n_unprotected": done.n_unprotected,
        "nbytes_checked": done.nbytes_checked,
        "n_sha256": done.n_sha256,
        "n_others": done.n_others,
        "seconds": round(verdict.seconds, 3),
        "findings": map(_finding_members, done.findings),
    }


def _finding_members(finding: Finding) -> dict[str, object]:
    return {
        "kind": finding.kind,
        "is_damage": finding.is_damage,
        "shard": finding.shard,
        "tensor": finding.tensor,
        "span": finding.span,
        "message": finding.message,
        "expected": finding.expected,
        "found": finding.found,
        "advice": _ADVICE[finding.kind],
    }
