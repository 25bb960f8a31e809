"""What was read of one file of pickles."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tensorkeep.formats.pickles.values._records import StorageRecord
from tensorkeep.transport import ByteRange

Form = Literal["zip", "torchscript", "legacy", "tar", "pickle"]


class PickleDocument(msgspec.Struct, frozen=True, eq=False):
    """One file of pickles, read and not run.

    Attributes:
        form: How it is laid out; `"pickle"` is a bare pickle without any tensor.
        value: What was saved: plain containers and data, and the records of this package. What was shared is shared,
            and there may be cycles.
        storages: Every storage that the pickle names, by key.
        spans: Key to the storage's bytes, half-open, in the source; each as long as its storage.
        is_big_endian: Whether the bytes of all storages are in that order.
        crcs: Key to the CRC-32 of the storage's bytes, for those of which an archive has one.
        dangers: Names in the pickle that could only do harm, and why.
        embedded: Key to the bytes of a storage that stand in the pickle itself, which has no span.
    """

    form: Form
    value: Any
    storages: dict[str, StorageRecord]
    spans: dict[str, ByteRange]
    is_big_endian: bool = False
    crcs: dict[str, int] = msgspec.field(default_factory=dict)
    dangers: dict[str, str] = msgspec.field(default_factory=dict)
    embedded: dict[str, bytes] = msgspec.field(default_factory=dict)
