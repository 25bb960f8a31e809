"""How a checkpoint is saved: made once from the arguments of a public function, then passed on whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tensorkeep.encryption import Encryption
from tensorkeep.formats.safetensors import ALIGNMENT_NBYTES, Arrangement
from tensorkeep.kinds.origins import Origin
from tensorkeep.kinds.safetensors import Checkpoint, TensorFile
from tensorkeep.layout import Index

if TYPE_CHECKING:
    from concurrent.futures import Executor


class SaveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of `save_checkpoint` other than what is saved and where, with sizes in bytes.

    Workers of the executor copy no bytes of files that were proven by reading them whole: another process would find
    these files changed only by their sizes and times.
    """

    max_shard_nbytes: int
    balance: bool = False
    split_large: bool = False
    layout: str | os.PathLike[str] | Index | None = None
    base_name: str = "model"
    variant: str | None = None
    metadata: Mapping[str, str] | None = None
    sha256: bool = False
    block_digests: bool = False
    durable: bool = True
    progress: Callable[[int, int], None] | None = None
    align: int = ALIGNMENT_NBYTES
    order: Sequence[str] | None = None
    index_metadata: Mapping[str, Any] | None = None
    reuse: Checkpoint | TensorFile | None = None
    companions: Mapping[str, bytes] | None = None
    describe: Callable[[Mapping[str, str]], Mapping[str, bytes]] | None = None
    before_commit: Callable[[Mapping[str, str]], None] | None = None
    encryption: Encryption | None = None
    executor: Executor | None = None
    origins: Mapping[str, Origin] = {}

    def __post_init__(self) -> None:
        Arrangement.of(self.align, self.order)

    @property
    def arrangement(self) -> Arrangement:
        """Where tensors go in each file."""
        return Arrangement.of(self.align, self.order)

    @property
    def stem(self) -> str:
        """What every file name of the checkpoint begins with, such as `model.fp16`."""
        return f"{self.base_name}.{self.variant}" if self.variant else self.base_name

    @property
    def needs_index(self) -> bool:
        """Whether even a single file gets an index, since only an index can hold what was asked for."""
        return self.sha256 or self.block_digests or self.index_metadata is not None
