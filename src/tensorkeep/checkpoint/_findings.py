"""What is wrong with a checkpoint, said so that a person finds the place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from tensorkeep.errors import IntegrityError, SourceMissingError, TensorkeepError

__all__ = ["Finding", "Kind", "refuse"]

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
    "stray",
]

_SHOWN = 5


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong.

    Attributes:
        kind: `"missing"`: a shard is not there; `"truncated"`: of another size than the index says; `"header"`: its
            header is damaged; `"foreign"`: a whole file, but of another save; `"absent"`: a tensor that the index
            promises is not in its shard; `"duplicate"`: a tensor is in two shards; `"data"`: a tensor's bytes are
            not those that were saved; `"unreadable"`: they cannot be read; `"sha256"`: nor is the whole shard;
            `"stray"`: a shard lies there that the index does not know, which harms nobody but readers that take it.
        message: What is wrong, in one sentence.
        shard: Name of the file.
        tensor: Name of the tensor, or None where a whole file is concerned.
        span: Half-open range in bytes of the file that is concerned, or None.
        expected: What should have stood there, or None.
        found: What stands there, or None.
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
        """Return the finding in one line."""
        text = f"{self.shard}: {self.message}"
        facts = [f"{label} {fact}" for label, fact in (("expected", self.expected), ("found", self.found)) if fact]
        return f"{text}: {', '.join(facts)}" if facts else text


def refuse(findings: Sequence[Finding], path: str) -> None:
    """Raise an error if anything is damaged.

    Args:
        findings: What was found.
        path: The checkpoint.

    Raises:
        SourceMissingError: If shards are not there, and that is all.
        IntegrityError: If there is any other damage.
    """
    damage = [finding for finding in findings if finding.is_damage]
    if not damage:
        return
    shown = "; ".join(str(finding) for finding in damage[:_SHOWN])
    if len(damage) > _SHOWN:
        shown += f"; and {len(damage) - _SHOWN} more"
    all_missing = all(finding.kind == "missing" for finding in damage)
    error: type[TensorkeepError] = SourceMissingError if all_missing else IntegrityError
    raise error(
        "shards of the checkpoint are missing" if all_missing else "the checkpoint is not whole",
        path=path,
        tensor=damage[0].tensor,
        found=shown,
        hint="Get the named files again" if all_missing else f"tensorkeep verify {path} lists everything",
    )
