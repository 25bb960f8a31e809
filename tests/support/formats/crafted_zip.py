"""Zip archives written byte by byte: as torch writes them, but for every field that a test gives another value."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

LOCAL = ("signature", "need", "flags", "method", "time", "date", "crc", "n_stored", "nbytes", "n_name", "n_extra")
LOCAL_LAYOUT = "<4s5H3I2H"
CENTRAL = (
    *("signature", "made_by", "need", "flags", "method", "time", "date", "crc", "n_stored", "nbytes"),
    *("n_name", "n_extra", "n_comment", "disk", "internal", "external", "offset"),
)
CENTRAL_LAYOUT = "<4s6H3I5H2I"
END = ("signature", "disk", "directory_disk", "n_here", "n_members", "size", "start", "n_comment")
END_LAYOUT = "<4s4H2IH"
WIDE_END = (
    *("signature", "record_size", "made_by", "need", "disk", "directory_disk"),
    *("n_here", "n_members", "size", "start"),
)
WIDE_END_LAYOUT = "<4sQ2H2I4Q"
LOCATOR = ("signature", "disk", "place", "n_disks")
LOCATOR_LAYOUT = "<4sIQI"

ONES = 0xFFFF_FFFF


@dataclass
class Part:
    """One member; `local`, `central` and `descriptor` give fields other values, `name` and `extra` among them."""

    name: bytes | str
    data: bytes = b"contents"
    method: int = 0
    has_descriptor: bool = True
    local: dict[str, Any] = field(default_factory=dict)
    central: dict[str, Any] = field(default_factory=dict)
    descriptor: dict[str, Any] = field(default_factory=dict)
    before: bytes = b""
    offset: int | None = None

    def stored(self) -> bytes:
        if self.method != 8:
            return self.data
        deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
        return deflater.compress(self.data) + deflater.flush()


def padding(start: int, n_name: int) -> bytes:
    """Return the extra field that makes torch's data start at a multiple of 64."""
    n_pad = -(start + 30 + n_name + 4) % 64
    return struct.pack("<2H", 0x4246, n_pad) + b"Z" * n_pad


def packed(layout: str, names: tuple[str, ...], values: dict[str, Any], changes: dict[str, Any]) -> bytes:
    return struct.pack(layout, *({**values, **changes}[name] for name in names))


def local_and_central(part: Part, offset: int) -> tuple[bytes, bytes]:
    """Return the member with all that is around it, and its entry."""
    name = part.name.encode() if isinstance(part.name, str) else part.name
    stored = part.stored()
    sums = {"crc": zlib.crc32(part.data), "n_stored": len(stored), "nbytes": len(part.data)}
    shared = {
        "need": 20 if part.method else 0,
        "flags": 0x0808 if part.has_descriptor else 0x0800,
        "method": part.method,
        "time": 0,
        "date": 0,
    }
    local_name = part.local.get("name", name)
    local_extra = part.local.get("extra", padding(offset, len(local_name)))
    own = {"crc": 0, "n_stored": 0, "nbytes": 0} if part.has_descriptor else sums
    values = {"signature": b"PK\3\4", "n_name": len(local_name), "n_extra": len(local_extra), **shared, **own}
    changes = {key: value for key, value in part.local.items() if key not in {"name", "extra"}}
    member = packed(LOCAL_LAYOUT, LOCAL, values, changes) + local_name + local_extra + stored
    if part.has_descriptor:
        layout = part.descriptor.get("layout", "<4s3I")
        values = {"signature": b"PK\7\x08", **sums}
        changes = {key: value for key, value in part.descriptor.items() if key != "layout"}
        member += packed(layout, ("signature", "crc", "n_stored", "nbytes"), values, changes)
    central_name = part.central.get("name", name)
    extra = part.central.get("extra", b"")
    comment = part.central.get("comment", b"")
    values = {
        "signature": b"PK\1\2",
        "made_by": 0,
        "n_name": len(central_name),
        "n_extra": len(extra),
        "n_comment": len(comment),
        "disk": 0,
        "internal": 0,
        "external": 0,
        "offset": offset,
        **shared,
        **sums,
    }
    changes = {key: value for key, value in part.central.items() if key not in {"name", "extra", "comment"}}
    return member, packed(CENTRAL_LAYOUT, CENTRAL, values, changes) + central_name + extra + comment


def crafted(
    *parts: Part,
    end: dict[str, Any] | None = None,
    wide: dict[str, Any] | None = None,
    locator: dict[str, Any] | None = None,
    is_wide: bool = True,
    before: bytes = b"",
    before_directory: bytes = b"",
    after_directory: bytes = b"",
    before_locator: bytes = b"",
    before_end: bytes = b"",
    after: bytes = b"",
) -> bytes:
    """Return an archive; offsets do not count `before`, as in a file with something put in front of it."""
    body = directory = b""
    for part in parts:
        body += part.before
        offset = len(body) if part.offset is None else part.offset
        member, entry = local_and_central(part, offset)
        body += member if part.offset is None else b""
        directory += entry
    body += before_directory
    where = {"n_here": len(parts), "n_members": len(parts), "size": len(directory), "start": len(body), "disk": 0}
    wide_place = len(body) + len(directory) + len(after_directory)
    tail = b""
    if is_wide:
        values = {"signature": b"PK\6\6", "record_size": 44, "made_by": 798, "need": 45, "directory_disk": 0, **where}
        tail += packed(WIDE_END_LAYOUT, WIDE_END, values, wide or {}) + before_locator
        values = {"signature": b"PK\6\7", "disk": 0, "place": wide_place, "n_disks": 1}
        tail += packed(LOCATOR_LAYOUT, LOCATOR, values, locator or {})
    values = {"signature": b"PK\5\6", "directory_disk": 0, "n_comment": 0, **where}
    tail += before_end + packed(END_LAYOUT, END, values, end or {})
    return before + body + directory + after_directory + tail + after
