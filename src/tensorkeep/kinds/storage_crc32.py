"""The CRC-32 of each storage that torch's archives have, held against the bytes. torch itself never looks at them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tensorkeep.kinds.dcp import DistributedCheckpoint
from tensorkeep.kinds.pickles import PickleFile
from tensorkeep.parallel import ProgressMeter
from tensorkeep.transport import ByteRange, ByteSource


class Summed(msgspec.Struct, frozen=True):
    """One storage that has a CRC-32.

    Attributes:
        tensor: Name of the first tensor that is a view of it.
        source: Its file.
        span: Its bytes, half-open, in that file.
        crc: What they should sum to.
    """

    tensor: str
    source: ByteSource
    span: ByteRange
    crc: int


def summed_storages(file: PickleFile, names: Iterable[str]) -> list[Summed]:
    """Return the storages of some tensors, as far as their archive has a sum of them: writers may leave it out."""
    crcs, spans, tensors = file.document.crcs, file.document.spans, file.tensors
    firsts: dict[str, str] = {}
    for name in names:
        storage = tensors[name].storage if name in tensors else None
        if storage is not None and storage.key in crcs:
            firsts.setdefault(storage.key, name)
    return [Summed(name, file.source, spans[key], crcs[key]) for key, name in firsts.items()]


def summed_chunks(checkpoint: DistributedCheckpoint, name: str) -> list[Summed]:
    """Return the storages of a tensor's parts, as far as their archives have sums of them."""
    files = checkpoint.files
    return [
        Summed(name, files[file], chunk.storage, chunk.crc)
        for file, chunk in checkpoint.opened_chunks(name)
        if chunk.storage is not None
    ]


def sum_of(summed: Summed, meter: ProgressMeter) -> int:
    """Return the CRC-32 that the bytes of a storage have now."""
    from zlib_ng.zlib_ng import crc32  # ten times as fast as zlib's, and only needed here

    crc = 0
    for piece in summed.source.pieces(summed.span):
        crc = crc32(piece, crc)
        meter.add(len(piece))
    return crc
