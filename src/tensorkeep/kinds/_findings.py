"""What is wrong with a checkpoint, in words that lead a person to the place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from tensorkeep.errors import IntegrityError, SourceMissingError, TensorkeepError
from tensorkeep.phrases import listed

Kind = Literal[
    "missing",
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
]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong.

    Attributes:
        kind: `"missing"`: a shard does not exist; `"truncated"`: its size is not the one in the index;
            `"header"`: its header is damaged; `"foreign"`: a whole file, but from another save; `"absent"`: a tensor
            that the index lists is not in its shard; `"duplicate"`: a tensor is in two shards; `"data"`: a tensor's
            bytes are not those that were saved; `"unreadable"`: they cannot be read; `"sha256"`: a shard has another
            SHA-256; `"state"`: the description of the nested data does not fit the tensors; `"file"`: another file
            that was saved with them has changed; `"stray"`: the index does not list this shard, which only matters
            to programs that load files by name.
        message: What is wrong, in one sentence.
        shard: Name of the file.
        tensor: Name of the tensor, or None where a whole file is concerned.
        span: Half-open range in bytes of the file that is concerned, or None.
        expected: What should be there, or None.
        found: What is there, or None.
    """

    kind: Kind
    message: str
    shard: str
    tensor: str | None = None
    span: tuple[int, int] | None = None
    expected: str | None = None
    found: str | None = None

    @property
    def is_damage(self) -> bool:
        """Whether the checkpoint is not the one that was saved."""
        return self.kind != "stray"

    def __str__(self) -> str:
        text = f"{self.shard}: {self.message}"
        facts = [f"{label} {fact}" for label, fact in (("expected", self.expected), ("found", self.found)) if fact]
        return f"{text}: {', '.join(facts)}" if facts else text


class Verification(msgspec.Struct, frozen=True):
    """What was checked, and what was found.

    Attributes:
        path: The checkpoint.
        findings: All that is wrong, shard by shard in the order of the bytes.
        n_shards: Files of the checkpoint.
        n_tensors: Tensors in them.
        n_checked: Tensors whose bytes were compared with their checksum.
        n_unprotected: Tensors that have no checksum.
        nbytes_checked: Bytes of the tensors that were checked.
        n_sha256: Shards that were compared with their SHA-256.
        n_others: Other files that were compared with the manifest of their directory.
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

    @property
    def is_damaged(self) -> bool:
        """Whether anything is not as it was saved."""
        return any(finding.is_damage for finding in self.findings)

    @property
    def is_whole(self) -> bool:
        """Whether all that was asked for was checked, and nothing is wrong; never true where a digest is missing."""
        return not self.is_damaged and not self.n_unprotected


def refuse(findings: Sequence[Finding], path: str) -> None:
    """Raise an error if anything is damaged."""
    damage = [finding for finding in findings if finding.is_damage]
    if not damage:
        return
    shown = listed(map(str, damage), separator="; ")
    all_missing = all(finding.kind == "missing" for finding in damage)
    error: type[TensorkeepError] = SourceMissingError if all_missing else IntegrityError
    raise error(
        "shards of the checkpoint are missing" if all_missing else "the checkpoint is not whole",
        path=path,
        tensor=damage[0].tensor,
        found=shown,
        hint="Get the named files again" if all_missing else f"tensorkeep verify {path} lists everything",
    )
