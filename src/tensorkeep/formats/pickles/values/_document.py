"""Everything that was read from one file of pickles."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tensorkeep.formats.pickles.values._records import StorageRecord
from tensorkeep.transport import ByteRange

Form = Literal["zip", "torchscript", "legacy", "tar", "pickle"]


class PickleDocument(msgspec.Struct, frozen=True, eq=False):
    """One file of pickles, read without running anything.

    Attributes:
        form: Its layout; `"pickle"` is a bare pickle without tensors.
        value: What was saved, as plain containers, plain data and records. Shared parts are shared, and there may be
            cycles.
        storages: Every storage that the pickle names, by key.
        spans: Key to the bytes of the storage in the source; each is as long as its storage.
        is_big_endian: Whether all storages are big-endian.
        crcs: Key to the CRC-32 of the storage's bytes, if the archive has one.
        dangers: Names in the pickle that could only do harm, each with the reason.
        metadata: Free text by key, which was saved beside the value.
        embedded: Key to the bytes of each storage that is inside the pickle itself, and so has no span.
        places: Id of the elements of an array in memory to these, and to where they are in the file; where known.
    """

    form: Form
    value: Any
    storages: dict[str, StorageRecord]
    spans: dict[str, ByteRange]
    is_big_endian: bool = False
    crcs: dict[str, int] = msgspec.field(default_factory=dict)
    dangers: dict[str, str] = msgspec.field(default_factory=dict)
    embedded: dict[str, bytes] = msgspec.field(default_factory=dict)
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    places: dict[int, tuple[bytes, int]] = msgspec.field(default_factory=dict)
