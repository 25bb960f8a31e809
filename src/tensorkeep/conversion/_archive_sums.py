"""The CRC-32 of each storage that torch's archives have, held against the bytes. torch itself never looks at them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tensorkeep.checkpoint.workers import Meter
from tensorkeep.errors import IntegrityError
from tensorkeep.pickled import PickleFile
from tensorkeep.transport import ByteRange, ByteSource

__all__ = ["Summed", "check_sums", "summed_storages"]


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
    """Return the storages of some tensors, as far as their archive has a sum of them: writers may leave it out.

    Args:
        file: The file; those that are no archive have no sums.
        names: Its tensors.
    """
    crcs, spans, tensors = file.document.crcs, file.document.spans, file.tensors
    firsts: dict[str, str] = {}
    for name in names:
        storage = tensors[name].storage if name in tensors else None
        if storage is not None and storage.key in crcs:
            firsts.setdefault(storage.key, name)
    return [Summed(name, file.source, spans[key], crcs[key]) for key, name in firsts.items()]


def check_sums(storages: list[Summed], meter: Meter) -> None:
    """Hold storages against their sums, one after another.

    Args:
        storages: What to check.
        meter: Told the bytes that are done.

    Raises:
        IntegrityError: If bytes are not those that were saved.
        TransportError: If they cannot be read.
    """
    from zlib_ng.zlib_ng import crc32  # ten times as fast as zlib's, and only needed here

    def check(summed: Summed) -> None:
        crc = 0
        for piece in summed.source.pieces(summed.span):
            crc = crc32(piece, crc)
            meter.add(len(piece))
        if crc != summed.crc:
            raise IntegrityError(
                f"the bytes of tensor `{summed.tensor}` are not those that were saved",
                path=summed.source.name,
                tensor=summed.tensor,
                expected=f"CRC-32 {summed.crc:#010x}",
                found=f"{crc:#010x}",
                hint="The file is damaged: get it again. check=False (--no-check) converts it as it is",
            )

    for summed in storages:
        check(summed)
