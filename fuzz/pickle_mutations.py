"""Pickles and files of pickles, broken at random: the input of the fuzzer and of the property tests.

A pickle is split into its opcodes, mutated as such (swapped, dropped, inserted, spliced with another, given other
lengths and memo numbers), then mutated as bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from fuzz.pickle_seeds import Parts

__all__ = ["FILE_MUTATIONS", "MUTATIONS", "mutated", "mutated_file"]

_NUMBERS = (0, 1, 2, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
_PIECES = (
    *(bytes([code]) for code in b"(.012NQRabdeltusou]})\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94\x97\x98"),
    *(b"K\x00", b"K\x01", b"J\xff\xff\xff\xff", b"M\x00\x01", b"G\x7f\xf0\0\0\0\0\0\0", b"\x8a\x00", b"\x8a\x01\xff"),
    *(
        b"I01\n",
        b"I-5\n",
        b"L7L\n",
        b"F1.5\n",
        b"S'a'\n",
        b"V\\u0041\n",
        b"U\x01a",
        b"T\x01\0\0\0a",
        b"C\x01a",
        b"P0\n",
    ),
    *(
        b"X\x01\0\0\0a",
        b"\x8c\x07storage",
        b"\x8d\x01\0\0\0\0\0\0\0a",
        b"\x8e\x01\0\0\0\0\0\0\0a",
        b"\x96\x01\0\0\0\0\0\0\0a",
    ),
    *(
        b"h\x00",
        b"h\x05",
        b"q\x00",
        b"q\x05",
        b"j\x01\0\0\0",
        b"r\x01\0\0\0",
        b"g1\n",
        b"p1\n",
        b"\x80\x02",
        b"\x80\x04",
    ),
    *(b"\x95\x04\0\0\0\0\0\0\0", b"\x82\x01", b"\x83\x01\0", b"\x84\x01\0\0\0", b"cos\nsystem\n", b"ios\nsystem\n"),
    *(b"ccollections\nOrderedDict\n", b"ccollections\ndeque\n", b"c__builtin__\nset\n", b"c__builtin__\nxrange\n"),
    *(b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch._utils\n_rebuild_parameter\n", b"ctorch\nFloatStorage\n"),
    *(
        b"ctorch._tensor\n_rebuild_from_type_v2\n",
        b"c_codecs\nencode\n",
        b"cnumpy\ndtype\n",
        b"ca\nB\n",
        b"ctorch\nSize\n",
    ),
    *(b")" + b"2\x86" * 40, b")" + b"\x85" * 300, b"(" * 50, b"\x8a\x08" + (2**61 - 1).to_bytes(8, "little")),
)
"""What is put in: opcodes, whole values, and names."""


def swap(rng: Random, parts: Parts, _: list[Parts]) -> None:
    one, other = rng.randrange(len(parts)), rng.randrange(len(parts))
    parts[one], parts[other] = parts[other], parts[one]


def swap_neighbours(rng: Random, parts: Parts, _: list[Parts]) -> None:
    place = rng.randrange(len(parts))
    parts[place : place + 2] = parts[place : place + 2][::-1]


def drop(rng: Random, parts: Parts, _: list[Parts]) -> None:
    place = rng.randrange(len(parts))
    del parts[place : place + rng.choice((1, 1, 1, 2, 5))]


def repeat(rng: Random, parts: Parts, _: list[Parts]) -> None:
    place = rng.randrange(len(parts))
    parts[place:place] = parts[place : place + rng.choice((1, 2, 5, 20))] * rng.choice((1, 1, 2, 50))


def insert(rng: Random, parts: Parts, _: list[Parts]) -> None:
    parts.insert(rng.randrange(len(parts) + 1), rng.choice(_PIECES))


def replace(rng: Random, parts: Parts, _: list[Parts]) -> None:
    parts[rng.randrange(len(parts))] = rng.choice(_PIECES)


def copy(rng: Random, parts: Parts, pool: list[Parts]) -> None:
    """Insert some opcodes of another pickle."""
    other = rng.choice(pool)
    place = rng.randrange(len(other))
    at = rng.randrange(len(parts) + 1)
    parts[at:at] = other[place : place + rng.choice((1, 3, 10, 40))]


def splice(rng: Random, parts: Parts, pool: list[Parts]) -> None:
    """Continue in the middle of another pickle."""
    other = rng.choice(pool)
    parts[rng.randrange(len(parts) + 1) :] = other[rng.randrange(len(other)) :]


def change_number(rng: Random, parts: Parts, _: list[Parts]) -> None:
    """Change an opcode's numeric argument: a length, a memo number, an integer."""
    place = rng.randrange(len(parts))
    code, argument = parts[place][:1], parts[place][1:]
    width = {
        b"K": 1,
        b"M": 2,
        b"J": 4,
        b"h": 1,
        b"q": 1,
        b"j": 4,
        b"r": 4,
        b"X": 4,
        b"B": 4,
        b"T": 4,
        b"C": 1,
        b"U": 1,
    }.get(
        code, {0x8C: 1, 0x8A: 1, 0x8B: 4, 0x8D: 8, 0x8E: 8, 0x96: 8, 0x95: 8, 0x80: 1}.get(code[0] if code else 0, 0)
    )
    number = rng.choice((*_NUMBERS, int.from_bytes(argument[:width], "little") + rng.choice((-1, 1))))
    if width:
        parts[place] = code + (number % 2 ** (8 * width)).to_bytes(width, "little") + argument[width:]


def change_memo(rng: Random, parts: Parts, _: list[Parts]) -> None:
    """Get or put another memo entry."""
    places = [place for place, part in enumerate(parts) if part[:1] in {b"h", b"q", b"j", b"r"}]
    if places:
        parts[rng.choice(places)] = rng.choice((b"h", b"q")) + bytes([rng.randrange(12)])


def change_name(rng: Random, parts: Parts, pool: list[Parts]) -> None:
    """Take another pickle's name."""
    names = [part for part in rng.choice(pool) if part[:1] == b"c"]
    places = [place for place, part in enumerate(parts) if part[:1] == b"c"]
    if names and places:
        parts[rng.choice(places)] = rng.choice(names)


def flip_bits(rng: Random, parts: Parts, _: list[Parts]) -> None:
    data = bytearray(b"".join(parts))
    for _number in range(rng.choice((1, 1, 2, 5))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    parts[:] = [bytes(data)]


def change_bytes(rng: Random, parts: Parts, _: list[Parts]) -> None:
    data = bytearray(b"".join(parts))
    place = rng.randrange(len(data) + 1)
    data[place : place + rng.choice((0, 1, 1, 4, 8))] = rng.randbytes(rng.choice((0, 1, 1, 4, 8)))
    parts[:] = [bytes(data)]


def cut_off(rng: Random, parts: Parts, _: list[Parts]) -> None:
    data = b"".join(parts)
    parts[:] = [data[: rng.randrange(len(data) + 1)]]


OPCODE_MUTATIONS = (
    *(swap, swap_neighbours, drop, repeat, insert, replace, copy, splice, change_number, change_memo, change_name),
)
BYTE_MUTATIONS = (flip_bits, change_bytes, cut_off)
MUTATIONS: tuple[Callable[[Random, Parts, list[Parts]], None], ...] = (*OPCODE_MUTATIONS, *BYTE_MUTATIONS)


def mutated(rng: Random, pool: list[Parts]) -> bytes:
    """Mutate a pickle one to four times, first as opcodes, then as bytes.

    Args:
        rng: Where chance comes from.
        pool: The result of `seeds`.
    """
    parts = list(rng.choice(pool))
    chosen = sorted((rng.choice(MUTATIONS) for _ in range(rng.choice((1, 1, 2, 3, 4)))), key=MUTATIONS.index)
    for mutation in chosen:
        if parts:
            mutation(rng, parts, pool)
    return b"".join(parts)


def change_byte(rng: Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] = rng.randrange(256)


def flip_bit(rng: Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def change_field(rng: Random, data: bytearray) -> None:
    """Change a number of two, four or eight bytes: a length, an offset, a count."""
    width = rng.choice((2, 4, 8))
    place = rng.randrange(len(data))
    old = int.from_bytes(data[place : place + width], "little")
    new = rng.choice((*_NUMBERS, old + 1, old - 1, old + 64, rng.randrange(2 * len(data))))
    data[place : place + width] = (new % 2 ** (8 * width)).to_bytes(width, "little")


def change_record(rng: Random, data: bytearray) -> None:
    """Change a byte of a zip header: a member's, the directory's, an end record's."""
    marks = [b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\6\7", b"PK\7\x08", b"ustar"]
    places = [place for mark in marks if (place := data.find(mark, rng.randrange(len(data)))) >= 0]
    if places:
        place = rng.choice(places) + rng.randrange(80)
        data[place : place + 1] = bytes([rng.choice((0, 1, 8, 255, rng.randrange(256)))])


def swap_blocks(rng: Random, data: bytearray) -> None:
    size = rng.choice((1, 16, 64, 512))
    one, other = rng.randrange(len(data)), rng.randrange(len(data))
    data[one : one + size], data[other : other + size] = data[other : other + size], data[one : one + size]


def drop_bytes(rng: Random, data: bytearray) -> None:
    place = rng.randrange(len(data))
    del data[place : place + rng.choice((1, 2, 8, 64, 512))]


def repeat_bytes(rng: Random, data: bytearray) -> None:
    place = rng.randrange(len(data))
    data[place:place] = data[place : place + rng.choice((1, 8, 64, 512))]


def cut_end(rng: Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def append_bytes(rng: Random, data: bytearray) -> None:
    data += rng.choice((b"\0", bytes(512), b"PK\5\6" + bytes(18), data[-22:]))


FILE_MUTATIONS: tuple[Callable[[Random, bytearray], None], ...] = (
    *(change_byte, flip_bit, change_field, change_field, change_record, change_record, swap_blocks),
    *(drop_bytes, repeat_bytes, cut_end, append_bytes),
)


def mutated_file(rng: Random, pool: list[bytes]) -> bytes:
    """Mutate a file one to three times.

    Args:
        rng: Where chance comes from.
        pool: The result of `files`.
    """
    data = bytearray(rng.choice(pool))
    for _ in range(rng.choice((1, 1, 2, 3))):
        if data:
            rng.choice(FILE_MUTATIONS)(rng, data)
    return bytes(data)
