"""The file beside a shard with the digests of its blocks."""

from __future__ import annotations

import os
from base64 import b64decode

import msgspec

from tensorkeep.digests import digest_of
from tensorkeep.digests.blocks import TREE, TreeShape
from tensorkeep.errors import SourceMissingError
from tensorkeep.formats.safetensors import Seal
from tensorkeep.kinds.base import Check, Checks, Finding
from tensorkeep.transport import BlockProof, ByteRange, open_source


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

    def checks(self, data_nbytes: int) -> Checks:
        """Return the check of the file, if it is there: without it, nothing is lost but time."""
        name, expected = os.path.basename(self.path), TreeShape(data_nbytes).nbytes
        try:
            nbytes = open_source(self.path, backend="pread").nbytes
        except SourceMissingError:
            return Checks()
        if nbytes != expected:
            message = "the file is truncated" if nbytes < expected else "the file is too long"
            return Checks(
                findings=[Finding("truncated", message, name, expected=f"{expected:,} bytes", found=f"{nbytes:,}")]
            )
        return Checks([Check(name, None, self.path, ByteRange(0, nbytes), TREE, self.root, n_tensors=0)])
