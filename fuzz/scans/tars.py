"""Tar archives, field by field: odd numbers, links, pax records, and those of torch 0.1."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from functools import cache

from fuzz.pickle_seeds import files
from fuzz.scans.chance import Chance

__all__ = ["any_tar", "torch_tar", "wrapped_in_a_pickle"]

_Inner = Callable[[], bytes]
_Members = list[tuple[bytes, bytes]]
_ODD = (b"0o%o", b" +%o", b"\t%o", b"+%o", b" %o", b"%o ", b"\n%o", b"0%o", b"0O%o", b"-%o", b"\v%o\f", b"%o\0009")
_NAMES = (b"a", b"a/b.pkl", b"x.npy", b"storages", b"pickle", b"config.json", b"w.dat", b"d/", b"../a", b"/a")


def _number(chance: Chance, number: int, width: int, *, odd: float = 0.15) -> bytes:
    if not chance.often(odd):
        return b"%0*o\0" % (width - 1, number)
    chance.note("tar: odd number")
    style = chance.choice((*_ODD, b"grouped", b"binary"))
    if style == b"binary":
        return b"\x80" + number.to_bytes(width - 1, "big")
    digits = b"%o" % number
    text = digits[:1] + b"_" + digits[1:] if style == b"grouped" else style % number
    return text[:width].ljust(width, chance.choice((b"\0", b" ")))


def _header(chance: Chance, name: bytes, size: int, kind: bytes = b"0", target: bytes = b"") -> bytes:
    mark = chance.choice((b"ustar\00000", b"ustar\00000", b"ustar  \0", bytes(8)))
    numbers = [_number(chance, number, width) for number, width in ((0o644, 8), (0, 8), (0, 8), (size, 12), (0, 12))]
    before = name[:100].ljust(100, b"\0") + b"".join(numbers)
    after = kind + target[:100].ljust(100, b"\0") + mark
    return _with_sum(chance, before, after.ljust(512 - 156, b"\0"))


def _with_sum(chance: Chance, before: bytes, after: bytes, *, odd: float = 0.15) -> bytes:
    """Return a header with its sum, which may be that of signed bytes."""
    rest = before + after
    total = sum(rest) + 256
    if chance.often(0.05):
        total -= 256 * sum(byte > 127 for byte in rest)
    return before + _number(chance, abs(total), 7, odd=odd).ljust(8)[:8] + after


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def _written(chance: Chance, members: _Members) -> bytes:
    out = b""
    for name, data in members:
        roll = chance.random()
        if roll < 0.05:
            chance.note("tar: pax")
            out += _described(chance, b"x", _record(b"path", chance.choice(_NAMES)))
        elif roll < 0.08:
            chance.note("tar: long name")
            out += _described(chance, b"L", chance.choice(_NAMES) + b"\0")
        elif roll < 0.1:
            chance.note("tar: pax size")
            out += _described(chance, chance.choice((b"x", b"g", b"X")), _record(b"size", b"%d" % len(data)))
        elif roll < 0.15:
            chance.note("tar: link")
            other = chance.choice((members[0][0], b"a", b"/etc/hostname", b"../../../../etc/hostname"))
            out += _header(chance, name, 0, chance.choice((b"1", b"2")), other)
        kind = b"0" if chance.often(0.9) else chance.choice((b"\0", b"7", b"Z", b"5", b"S", b"1"))
        size = len(data) if chance.often(0.97) else chance.choice((0, 512, len(data) + 512))
        own = chance.choice((b"a", name)) if 0.1 <= roll < 0.15 else name
        out += _header(chance, own, size, kind, members[0][0]) + _padded(data)
        if chance.often(0.03):
            chance.note("tar: gap")
            out += bytes(512)
    out += bytes(chance.choice((0, 512, 1024, 1024, 10_240)))
    if chance.often(0.05):
        chance.note("tar: suffix")
        out += chance.choice((b"x", chance.sled(), _header(chance, *members[0][:1], 0)))
    return out


def _record(key: bytes, value: bytes) -> bytes:
    length = len(key) + len(value) + 3
    length += len(b"%d" % (length + len(b"%d" % length)))
    return b"%d %b=%b\n" % (length, key, value)


def _described(chance: Chance, kind: bytes, content: bytes) -> bytes:
    return _header(chance, b"pax", len(content), kind) + _padded(content)


def any_tar(chance: Chance, inner: _Inner) -> bytes:
    """Return an archive of any files."""
    return _written(chance, [(chance.choice(_NAMES), inner()) for _ in range(chance.choice((1, 1, 2, 3)))])


@cache
def _torch_seed() -> _Members:
    file = next(file for file in files() if file[257:262] == b"ustar")
    with tarfile.open(fileobj=io.BytesIO(file)) as archive:
        taken = [(member.name.encode(), archive.extractfile(member)) for member in archive]
        return [(name, opened.read()) for name, opened in taken if opened]


def torch_tar(chance: Chance, inner: _Inner) -> bytes:
    """Return an archive of torch 0.1, in which a member may be another file."""
    chance.note("torch tar")
    members = list(_torch_seed())
    if chance.often(0.7):
        place = chance.randrange(len(members))
        name, data = members[place]
        members[place] = name, chance.choice((inner(), inner() + data, data + inner()))
    if chance.often(0.2):
        members.insert(chance.randrange(len(members) + 1), (chance.choice(_NAMES), inner()))
    return _written(chance, members)


def wrapped_in_a_pickle(chance: Chance, tar: bytes, rest: bytes) -> bytes:
    """Return a pickle whose start is the header of an empty member, and which contains a tar archive.

    Args:
        chance: Where chance comes from.
        tar: The archive.
        rest: What comes after the text that contains it, such as the rest of a legacy file.
    """
    chance.note("a tar in a pickle")
    is_legacy = chance.often(0.6)
    magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03." if is_legacy else b""
    opening = magic + b"\x80\x02" + (b"}U\1aB" if is_legacy else b"B")
    after = b"s.\x80\x02}.\x80\x02]." if is_legacy else b"."
    header = _header(chance, b"", 0, chance.choice((b"0", b"\0", b"5")))
    start = len(opening) + 4
    inside = header[start:100] + header[100:] + tar
    before = opening + len(inside[: 512 - start] + tar).to_bytes(4, "little")
    block = before + inside[: 512 - start]
    return _with_sum(chance, block[:148], block[156:512], odd=0.5) + tar + after + rest
