"""What is wrong with a checkpoint, in terms that help a person find the place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from tensorkeep.errors import IntegrityError, SourceMissingError, TensorkeepError
from tensorkeep.markup import page, table
from tensorkeep.sarif import SarifResult, SarifRule, sarif_text
from tensorkeep.texts import counted, listed, size_text
from tensorkeep.transport import is_directory, join, split

Kind = Literal[
    "missing",
    "pointer",
    "truncated",
    "header",
    "foreign",
    "absent",
    "duplicate",
    "data",
    "unreadable",
    "sha256",
    "state",
    "file",
    "stray",
    "signature",
    "unsigned",
    "refused",
]


_MEANINGS: Final[dict[Kind, str]] = {
    "missing": "A file is missing",
    "pointer": "A Git LFS pointer is in place of a file",
    "truncated": "A file has the wrong size",
    "header": "A header or the index is damaged",
    "foreign": "A file is from another save",
    "absent": "A tensor is not in its file",
    "duplicate": "A tensor is in two files",
    "data": "Bytes of a tensor are not those that were saved",
    "unreadable": "Bytes cannot be read",
    "sha256": "The SHA-256 of a file is not the recorded one",
    "state": "The description of nested data does not fit the tensors",
    "file": "A file has changed",
    "stray": "A file beside the checkpoint misleads other programs",
    "signature": "Nobody trusted has signed the checkpoint",
    "unsigned": "No trusted signature names a file",
    "refused": "The policy does not allow this format, or pickles",
}
_UNVERIFIABLE: Final = SarifRule("unverifiable", "warning", "Tensors have no checksum")
_RULES: Final = (
    *(SarifRule(kind, "warning" if kind == "stray" else "error", text) for kind, text in _MEANINGS.items()),
    _UNVERIFIABLE,
)


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong with a checkpoint.

    `str()` gives one line for people: file, message, expected, found and hint.

    Attributes:
        kind: What went wrong:

            - `"missing"`: a shard, or a signed file, does not exist.
            - `"pointer"`: a Git LFS pointer is in place of a shard, to the file that the index records.
            - `"truncated"`: a file has the wrong size.
            - `"header"`: a header or the index is damaged, or a single file is too damaged to open.
            - `"foreign"`: a shard is a whole file, but from another save.
            - `"absent"`: a tensor that the index lists is not in its shard.
            - `"duplicate"`: a tensor is in two shards.
            - `"data"`: a tensor's bytes differ from those that were saved.
            - `"unreadable"`: bytes cannot be read.
            - `"sha256"`: a shard's SHA-256 differs from the one in the index.
            - `"state"`: the description of the nested data does not fit the tensors.
            - `"file"`: another file that was saved with the tensors has changed.
            - `"stray"`: the file is beside the checkpoint but not part of it: a shard that no index lists, or pickled
              weights. Not damage: it only misleads programs that load files by name.
            - `"signature"`: nobody whom the policy trusts has signed this.
            - `"unsigned"`: a file that no trusted signature names.
            - `"refused"`: the policy does not allow this format, or pickles.
        message: The same in a sentence.
        shard: Name of the file.
        tensor: Name of the tensor, or None if the finding is about a whole file.
        span: Half-open byte range in the file, or None.
        expected: What should be there, or None.
        found: What is there, or None.
        hint: What to do, if more is known than the kind says, or None.
    """

    kind: Kind
    message: str
    shard: str
    tensor: str | None = None
    span: tuple[int, int] | None = None
    expected: str | None = None
    found: str | None = None
    hint: str | None = None

    @property
    def is_damage(self) -> bool:
        """Whether the checkpoint differs from the one that was saved."""
        return self.kind != "stray"

    def __str__(self) -> str:
        text = f"{self.shard}: {self.message}"
        facts = [f"{label} {fact}" for label, fact in (("expected", self.expected), ("found", self.found)) if fact]
        text += ": " + ", ".join(facts) if facts else ""
        return f"{text}. {self.hint}" if self.hint else text


class Verification(msgspec.Struct, frozen=True):
    """The result of `verify`: what was checked, and what is wrong. True only if it `is_whole`.

    Attributes:
        path: The checkpoint.
        findings: Everything that is wrong: first what opening the files showed, then tensors in byte order.
        n_shards: Number of files that hold tensors.
        n_tensors: Number of tensors in them.
        n_checked: Number of tensors whose bytes were compared with a checksum.
        n_unprotected: Number of tensors without a checksum.
        nbytes_checked: Bytes of the tensors that were checked.
        n_sha256: Number of shards compared with their SHA-256.
        n_others: Number of other files that were compared with the directory's manifest, or what was signed.
        signers: Who signed it: ids of keys, and identities; only those whom the given policy trusts.
        n_kept: Number of shards whose SHA-256 in the index is the one that somebody else keeps: the Hub, Git LFS.
    """

    path: str
    findings: tuple[Finding, ...]
    n_shards: int
    n_tensors: int
    n_checked: int
    n_unprotected: int
    nbytes_checked: int
    n_sha256: int
    n_others: int = 0
    signers: tuple[str, ...] = ()
    n_kept: int = 0

    @property
    def is_damaged(self) -> bool:
        """Whether anything differs from what was saved."""
        return any(finding.is_damage for finding in self.findings)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged and no tensor lacks a checksum."""
        return not self.is_damaged and not self.n_unprotected

    def __bool__(self) -> bool:
        return self.is_whole

    def to_sarif(self) -> str:
        """Return the findings as SARIF 2.1.0, for code scanning services, in ASCII."""
        results = [_sarif_result(self.path, finding) for finding in self.findings]
        if self.n_unprotected:
            message = f"{self.n_unprotected:,} of {self.n_tensors:,} tensors have no checksum"
            results.append(SarifResult(rule=_UNVERIFIABLE.id, message=message, path=self.path))
        return sarif_text("verify", _RULES, results, about=[self.path])

    def _repr_html_(self) -> str:
        answer = "damaged" if self.is_damaged else "whole" if self.is_whole else "no damage found"
        facts = [
            f"{self.n_checked:,} of {self.n_tensors:,} tensors ({size_text(self.nbytes_checked)}) checked",
            f"{self.n_unprotected:,} without a checksum" if self.n_unprotected else "",
            counted(self.n_shards, "file"),
        ]
        rows = (
            (each.shard, each.tensor or "", each.message, each.expected or "", each.found or "", each.hint or "")
            for each in self.findings
        )
        headings = ("file", "tensor", "what is wrong", "expected", "found", "what to do")
        found = [table(headings, rows, len(self.findings))] if self.findings else []
        return page(f"{self.path}: {answer}", facts, *found)


def _sarif_result(path: str, finding: Finding) -> SarifResult:
    directory = path if is_directory(path) else split(path)[0]
    return SarifResult(
        rule=finding.kind,
        message=str(finding),
        path=str(join(directory, finding.shard)) if finding.shard else path,
        span=finding.span,
        parts=() if finding.tensor is None else (finding.tensor,),
        part_kind="tensor",
        properties={"expected": finding.expected, "found": finding.found},
    )


def refuse(findings: Sequence[Finding], path: str) -> None:
    """Raise an error if anything is damaged."""
    damage = [finding for finding in findings if finding.is_damage]
    if not damage:
        return
    shown = listed(damage, separator="; ")
    all_missing = all(finding.kind == "missing" for finding in damage)
    error: type[TensorkeepError] = SourceMissingError if all_missing else IntegrityError
    raise error(
        "shards of the checkpoint are missing" if all_missing else "the checkpoint is not whole",
        path=path,
        tensor=damage[0].tensor,
        found=shown,
        hint="Get the named files again" if all_missing else f"tensorkeep verify {path} lists everything",
    )
