"""The central directory of a zip archive: one entry per member. Pure."""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from tensorkeep.formats.archives._zip_end import ALL_ONES_32, ENTRY_SIGNATURE
from tensorkeep.formats.archives._zip_faults import FaultLog

STORED: Final = 0
DEFLATED: Final = 8
"""Compression methods; torch and NumPy use no others."""

HAS_DESCRIPTOR: Final = 0x0008
"""Flag: checksum and sizes follow the data."""

IS_UTF8: Final = 0x0800
"""Flag: the name is UTF-8. Without it, readers guess a code page."""

_DEFLATE_HINTS: Final = 0x0006
"""Flags: the compression level that was used."""

WIDE: Final = 0x0001
PADDING: Final = 0x4246
_TIMES: Final = (0x000A, 0x5455, 0x5855, 0x7855, 0x7875)
_ALIGNMENTS: Final = (0xA220, 0xD935)
_KNOWN_FIELDS: Final = frozenset({WIDE, PADDING, *_TIMES, *_ALIGNMENTS})
"""Extra fields: zip64 sizes, torch's padding ("FB"), times and owners, other programs' padding.

Any other field could hold a second name, a link, or encryption, which only some readers support.
"""

_OTHER_NAME: Final = 0x7075

_ENTRY: Final = struct.Struct("<4s4x2H4x3IH12sI")
_RARE: Final = struct.Struct("<3H2xI")
"""An entry, and the lengths and attributes within it."""

_PLAIN: Final = frozenset({bytes(_RARE.size), _RARE.pack(0, 0, 0, 0o600 << 16)})
"""These lengths and attributes as torch and NumPy write them: of a regular file without extra fields and comment."""

_USUAL_FLAGS: Final = frozenset({0, HAS_DESCRIPTOR, IS_UTF8, HAS_DESCRIPTOR | IS_UTF8})
_MSDOS_KINDS: Final = 0x18
_UNIX_REGULAR: Final = 0o10


class Entry(msgspec.Struct, gc=False):
    """One member, as declared in the directory.

    Attributes:
        name: Full name, top folder included.
        flags: General purpose flags.
        method: `STORED` or `DEFLATED`.
        crc: CRC-32 of its contents; 0 if the writer computed none.
        n_stored: Bytes of its stored data.
        nbytes: Bytes of its contents.
        offset: First byte of its local header, from the start of the archive.
        is_readable: Whether its data can be read: not encrypted, known compression method.
        start: First byte of its stored data, by its local header; -1 while unknown.
        n_descriptor: Bytes of the data descriptor, by its local header; 0 if there is none.
        head: The first bytes of its stored data, if they were asked for.
    """

    name: bytes
    flags: int
    method: int
    crc: int
    n_stored: int
    nbytes: int
    offset: int
    is_readable: bool = True
    start: int = -1
    n_descriptor: int = 0
    head: bytes = b""


def parse_directory(data: bytes, n_members: int, max_members: int, log: FaultLog) -> list[Entry]:
    """Parse all entries."""
    entries: list[Entry] = []
    place = 0
    last = len(data) - _ENTRY.size
    unpack = _ENTRY.unpack_from
    while place <= last and len(entries) < max_members:
        signature, flags, method, crc, n_stored, nbytes, n_name, rare, offset = unpack(data, place)
        if signature != ENTRY_SIGNATURE:
            break
        begin = place + _ENTRY.size
        place = begin + n_name
        entry = Entry(data[begin:place], flags, method, crc, n_stored, nbytes, offset)
        is_stored = method == STORED and n_stored == nbytes
        if rare not in _PLAIN or not is_stored or ALL_ONES_32 in (nbytes, offset) or flags not in _USUAL_FLAGS:
            n_extra, n_comment, disk, attributes = _RARE.unpack(rare)
            extra = data[place : place + n_extra]
            place += n_extra + n_comment
            _check_entry(entry, extra, n_comment, disk, attributes, log)
        entries.append(entry)
    if place != len(data):
        log.add("the directory does not end where the end record starts", expected=len(data), found=place)
    if len(entries) != n_members:
        what = "the directory and the end record declare different numbers of members"
        log.add(what, expected=n_members, found=len(entries))
    return entries


_WITHOUT_DIRECTORIES: Final = (
    "torch.save writes no members for directories. Zip the folder again without them: zip -0 -r -D model.pt folder"
)


def _check_entry(entry: Entry, extra: bytes, n_comment: int, disk: int, attributes: int, log: FaultLog) -> None:
    """Check the rare parts of an entry, and fill in its zip64 values."""
    if n_comment:
        log.add("it has a comment", entry.name, expected=0, found=n_comment, is_harmless=True)
    if disk:
        log.add("it is on another disk of a split archive", entry.name, expected="disk 0", found=f"disk {disk}")
    if attributes & _MSDOS_KINDS or attributes >> 28 not in {0, _UNIX_REGULAR}:
        kind = f"attributes {attributes:#010x}"
        is_directory = entry.name.endswith(b"/")
        what = "it is a directory" if is_directory else "it is a link, a directory or a device"
        hint = _WITHOUT_DIRECTORIES if is_directory else None
        log.add(what, entry.name, expected="a regular file", found=kind, hint=hint, is_harmless=True)
    _fill_wide(entry, extra, log)
    allowed = HAS_DESCRIPTOR | IS_UTF8 | (_DEFLATE_HINTS if entry.method else 0)
    strange = entry.flags & ~allowed
    is_resized = entry.method == STORED and entry.n_stored != entry.nbytes
    if entry.method not in {STORED, DEFLATED}:
        log.add(
            "its compression method is not supported",
            entry.name,
            expected="method 0 or 8",
            found=f"method {entry.method}",
            is_harmless=True,  # readers that cannot decompress it see nothing
        )
    if strange:
        what = "it is encrypted, or has unknown flags"
        log.add(what, entry.name, expected="no flags", found=f"{strange:#x}", is_harmless=True)
    if is_resized:
        what = "it is stored uncompressed, but stored and actual size differ"
        log.add(what, entry.name, expected=entry.nbytes, found=entry.n_stored)
    entry.is_readable = entry.method in {STORED, DEFLATED} and not strange and not is_resized


def _fill_wide(entry: Entry, extra: bytes, log: FaultLog) -> None:
    """Replace fields that are all ones with the zip64 values; there must be one value per such field."""
    fields = split_extra(extra, entry.name, log)
    wide = fields.get(WIDE, b"")
    names = [name for name in ("nbytes", "n_stored", "offset") if getattr(entry, name) == ALL_ONES_32]
    if len(wide) != 8 * len(names) or (WIDE in fields) != bool(names):
        log.add("its zip64 field has the wrong length", entry.name, expected=8 * len(names), found=len(wide))
    for name, (value,) in zip(names, struct.iter_unpack("<Q", wide[: len(wide) // 8 * 8]), strict=False):
        setattr(entry, name, value)


def split_extra(extra: bytes, name: bytes, log: FaultLog) -> dict[int, bytes]:
    """Return the extra fields of a member by number."""
    fields: dict[int, bytes] = {}
    place = 0
    while place < len(extra):
        number, size = struct.unpack_from("<2H", extra, place) if place <= len(extra) - 4 else (0, len(extra))
        stop = place + 4 + size
        if stop > len(extra):
            log.add("its extra fields are truncated", name, expected=len(extra), found=stop)
            break
        if number not in _KNOWN_FIELDS or number in fields:
            is_harmless = number not in fields and number != _OTHER_NAME
            what = "an extra field may change its meaning"
            log.add(what, name, found=f"field {number:#06x}", is_harmless=is_harmless)
        fields.setdefault(number, extra[place + 4 : stop])
        place = stop
    return fields
