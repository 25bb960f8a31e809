"""What `verify` found. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from tensorkeep.cli.terminal import Line, size_text, speed_text
from tensorkeep.texts import counted

if TYPE_CHECKING:
    from tensorkeep.kinds import Finding, Verification


Status = Literal["whole", "damaged", "unverifiable"]
"""`"unverifiable"`: nothing visible is wrong, but not everything that was asked for has digests."""

_ADVICE: Final = {
    "missing": "Download or copy this file again",
    "pointer": "Fetch the file: git lfs pull",
    "truncated": "Download or copy this file again",
    "header": "Download or copy this file again",
    "foreign": "Download or copy all files of one save again, with the index",
    "absent": "Download or copy the index and this file again, both from one save",
    "duplicate": "Download or copy the index and this file again, both from one save",
    "data": "Download or copy this file again; the tensors that are not listed are intact",
    "unreadable": "Check the disk and the permissions of this file, then verify again",
    "state": "Download or copy this file again; each tensor in it can still be read by its own name",
    "sha256": "Download or copy this file again",
    "file": "Download or copy this file again, or use an older checkpoint",
    "signature": "Get it again from its publisher, or, if you trust its signer, name that key or add a rule for it",
    "unsigned": "Remove it, or ask for a signature that names it",
    "refused": "Convert it to safetensors, or allow it in the policy if you trust its author",
    "stray": "Move it away if it is not needed: programs that choose files by name may load it",
}


_ABOUT_TRUST: Final = {"signature", "unsigned", "refused", "stray"}
"""Kinds of findings that do not say that anything changed."""


class Verdict(msgspec.Struct, frozen=True):
    """A verification, with what only the command knows.

    Attributes:
        verification: What was checked and found.
        n_asked: Tensors that were asked for, or None for all.
        seconds: How long it took.
        is_finished: Whether `reshard` can read it; files that many ranks wrote need `convert`.
        is_quick: Whether no data was read.
    """

    verification: Verification
    n_asked: int | None
    seconds: float
    is_finished: bool = True
    is_quick: bool = False

    @property
    def status(self) -> Status:
        """The answer."""
        if self.verification.is_damaged:
            return "damaged"
        if self.is_quick and self.verification.n_kept < max(self.verification.n_shards, 1):
            return "unverifiable"
        n_missing = 0 if self.n_asked is None else self.n_asked - self.verification.n_checked
        return "unverifiable" if self.verification.n_unprotected or n_missing else "whole"

    def lines(self, _width: int | None) -> Iterator[Line]:
        """Write the findings, and then the answer."""
        for finding in self.verification.findings:
            yield from _finding_lines(finding)
            yield []
        if self.status == "damaged":
            n_damaged = sum(finding.is_damage for finding in self.verification.findings)
            is_trust = {finding.kind for finding in self.verification.findings} <= _ABOUT_TRUST
            word = "not trusted" if is_trust else "damaged"
            yield [(word, "error"), (f": {counted(n_damaged, 'place')}; {_extent(self)}", "")]
        elif self.is_quick:
            yield from _quick_lines(self)
        elif self.status == "whole":
            yield [("no damage" if _is_part(self.verification) else "whole", "title"), (f": {_extent(self)}", "")]
            if self.verification.signers:
                yield [("signed by ", ""), (", ".join(self.verification.signers), "title")]
        else:
            yield from _unverifiable_lines(self)

    def members(self) -> dict[str, object]:
        """Return the same for JSON."""
        done = self.verification
        return {
            "path": done.path,
            "status": self.status,
            "n_shards": done.n_shards,
            "n_tensors": done.n_tensors,
            "n_checked": done.n_checked,
            "n_unprotected": done.n_unprotected,
            "nbytes_checked": done.nbytes_checked,
            "n_sha256": done.n_sha256,
            "n_others": done.n_others,
            "signers": done.signers,
            "n_kept": done.n_kept,
            "seconds": round(self.seconds, 3),
            "findings": map(_finding_members, done.findings),
        }


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
    yield [(f"  {_advice(finding)}", "dim")]


def _advice(finding: Finding) -> str:
    return finding.hint or _ADVICE[finding.kind]


def _quick_lines(verdict: Verdict) -> Iterator[Line]:
    done = verdict.verification
    files = counted(done.n_shards, "file")
    if verdict.status == "whole":
        yield [("as recorded", "title"), (f": {files}, by the SHA-256 kept elsewhere; no data was read", "")]
        return
    n_unknown = done.n_shards - done.n_kept
    yield [("not verified", "warning"), (f": {n_unknown:,} of {files}; no data was read", "")]
    yield [("The index has no SHA-256 of them, or nobody else keeps one. Without --quick, all bytes are checked", "")]


def _unverifiable_lines(verdict: Verdict) -> Iterator[Line]:
    done = verdict.verification
    n_wanted = done.n_tensors if verdict.n_asked is None else verdict.n_asked
    n_unknown = done.n_unprotected or n_wanted - done.n_checked
    yield [
        ("not verified", "warning"),
        (f": {n_unknown:,} of {n_wanted:,} tensors have no digest; only their structure was checked", ""),
    ]
    command = "reshard" if verdict.is_finished else "convert"
    yield [(f"`tensorkeep {command} {shlex.quote(done.path)} DIRECTORY` writes a copy with digests", "")]


def _extent(verdict: Verdict) -> str:
    """Write how much was checked, and how fast."""
    done = verdict.verification
    if not done.n_shards and not done.n_others:
        return "nothing else could be checked" if done.findings else "index, no tensors"
    files = "1 file" if done.n_shards == 1 else f"{done.n_shards:,} shards"
    all_tensors = counted(done.n_tensors, "tensor")
    tensors = f"{done.n_checked:,} of {all_tensors}" if _is_part(done) else all_tensors
    sums = f", SHA-256 of {counted(done.n_sha256, 'file')}" if done.n_sha256 else ""
    if done.n_others and not (done.signers and done.n_sha256):  # which count the same files
        sums += f", {counted(done.n_others, 'other file')}"
    speed = speed_text(done.nbytes_checked, verdict.seconds)
    without_digests = "checked" if done.n_sha256 else "no data checked"
    checked = f"{size_text(done.nbytes_checked)} checked in {speed}" if done.nbytes_checked else without_digests
    return f"{files}, {tensors}{sums}, {checked}"


def _is_part(done: Verification) -> bool:
    """Say whether only some tensors were checked; what is signed is checked whole, by its files."""
    return done.n_checked < done.n_tensors and not done.signers


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
        "advice": _advice(finding),
    }
