"""The file beside a shard with the digests of its blocks."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Iterator

import msgspec

from tensorkeep.digests import digest_of
from tensorkeep.digests.blocks import TREE, TreeShape
from tensorkeep.formats.safetensors import Seal
from tensorkeep.kinds.base import Check
from tensorkeep.transport import BlockProof, ByteRange, exists


class BlocksFile(msgspec.Struct, frozen=True):
    """The file with the digests of the blocks of another.

    Attributes:
        path: Its path or URL.
        root: The root that the index has, 32 bytes.
    """

    path: str
    root: bytes

    def proof(self, data_start: int, data_nbytes: int, seal: Seal) -> BlockProof:
        """Return the block digests, which are read when they are needed."""
        return BlockProof(
            self.path, data_start, data_nbytes, binding=digest_of(b64decode(seal.tensors)), root=self.root
        )

    def checks(self, data_nbytes: int) -> Iterator[Check]:
        """Give the check of the file, if it is there: without it, nothing is lost but time."""
        if exists(self.path):
            whole = ByteRange(0, TreeShape(data_nbytes).nbytes)
            yield Check(os.path.basename(self.path), None, self.path, whole, TREE, self.root, n_tensors=0)
