"""Weights that are pickles of torch.save, each in a member of its own, read without running anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tensorkeep.digests import CRC32
from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.formats._chunks import Checksum
from tensorkeep.formats._contents import TensorPlace
from tensorkeep.formats.archives import Member
from tensorkeep.formats.pickles import PickleDocument, TensorRecord, read_pickle
from tensorkeep.formats.pt2._payloads import View
from tensorkeep.transport import ByteSource

Found = TensorPlace | str
"""Where a tensor is, or why it is not read."""


class Pickled(msgspec.Struct, frozen=True):
    """What a member holds: a tensor, or a dict of tensors.

    Attributes:
        document: What was read.
        checksums: Of storages, by key, where the archive has one: one object for all tensors in it.
    """

    document: PickleDocument
    checksums: Mapping[str, Checksum]

    def tensor(self) -> Found:
        """Return where the only tensor is."""
        return self._place(self.document.value)

    def view(self, view: View) -> Found:
        """Return where a view of the only tensor's storage is."""
        base = self._place(self.document.value)
        record = self.document.value
        if isinstance(base, str):
            return base
        if view.stop(record.dtype) > len(self.document.spans[record.storage.key]):
            return "a view that is larger than its storage"
        return self._place(
            msgspec.structs.replace(record, offset=view.offset, shape=view.shape, strides=view.strides)
        )

    def tensors(self) -> dict[str, Found]:
        """Return where all tensors of a dict are."""
        value = self.document.value
        if not isinstance(value, dict):
            return {"": _described(value)}
        return {str(name): self._place(record) for name, record in value.items()}

    def _place(self, record: Any) -> Found:
        if not isinstance(record, TensorRecord) or record.storage is None or record.is_conj or record.is_neg:
            return _described(record)
        span = self.document.spans.get(record.storage.key)
        if span is None:
            return "a tensor within a pickle"
        start = span.start + ALL_BY_NAME[record.dtype].nbytes(record.offset)
        return TensorPlace(
            record.dtype,
            record.shape,
            start,
            strides=record.strides,
            is_big_endian=self.document.is_big_endian,
            checksum=self.checksums.get(record.storage.key),
        )


def read_pickled(source: ByteSource, member: Member) -> Pickled:
    """Read the pickle in a member."""
    document = read_pickle(source, member.span)
    sums = {
        key: Checksum(CRC32, crc.to_bytes(4, "big"), document.spans[key]) for key, crc in document.crcs.items() if crc
    }
    return Pickled(document, sums)


def _described(value: Any) -> str:
    if isinstance(value, TensorRecord):
        return "a tensor without data" if value.storage is None else "a tensor that is a conjugate or negative view"
    return f"a pickled object, which is not built: {value!r:.200}"
