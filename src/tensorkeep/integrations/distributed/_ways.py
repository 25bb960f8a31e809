"""How a save gets to where it goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner

from tensorkeep.integrations.distributed._council import Council
from tensorkeep.integrations.distributed._layout import Gathered
from tensorkeep.tensors import Prepared


class Options(msgspec.Struct, frozen=True):
    """What the user wants of a save.

    Attributes:
        layout: `"in_place"` or `"per_rank"`; None for what is usual there.
        max_shard_nbytes: Bytes of tensors in one file.
        base_name: What file names begin with.
        variant: Such as `"fp16"`.
        metadata: Free text by key, for each file.
        sha256: Whether the index gets the SHA-256 of each file.
        durable: Whether to wait until the disk has everything.
    """

    layout: str | None
    max_shard_nbytes: int
    base_name: str
    variant: str | None
    metadata: dict[str, str] | None
    sha256: bool
    durable: bool

    @property
    def naming(self) -> dict[str, Any]:
        """What the names of files are made of."""
        return {"base_name": self.base_name, "variant": self.variant}


class Way(Protocol):
    """One save of one process."""

    def begin(self, gathered: Gathered, prepared: Prepared, names: Mapping[str, str]) -> list[bytes]:
        """Plan the files of all, on the first rank."""

    def write(self, plan: SavePlan, planner: SavePlanner, task: bytes, council: Council) -> dict[str, bytes]:
        """Write what this rank has, and wait until all have."""

    def commit(self, told: dict[str, bytes]) -> None:
        """Switch to the new checkpoint, on the first rank."""

    def abandon(self) -> None:
        """Leave everything as it was; without effect on a save that is over."""
