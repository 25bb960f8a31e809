"""Broken files: bytes, lengths and ranges of whole ones are changed, mostly in headers and directories. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

_NUMBERS = (0, 1, 2, 7, 0x7F, 0x80, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
_MAX_TIMES = 4
_MAX_RANGE = 64


def mutated(rng: Random, content: bytes, others: list[bytes]) -> bytes:
    """Return a broken copy of a file.

    Args:
        rng: Decides what is broken.
        content: The whole file.
        others: Files of the same kind, from which ranges are taken.

    Returns:
        The bytes of the broken file, which may be empty.
    """
    data = bytearray(content)
    for _ in range(1 + min(_MAX_TIMES, int(rng.expovariate(1)))):
        if not data:
            break
        rng.choice(_MUTATIONS)(rng, data, rng.choice(others))
    return bytes(data)


def _place(rng: Random, nbytes: int) -> int:
    """Return a position: mostly near the start or the end, where formats keep headers and directories."""
    if rng.random() < 1 / 3:
        return rng.randrange(nbytes)
    near = min(nbytes - 1, int(math.exp(rng.random() * math.log(nbytes + 1))) - 1)
    return near if rng.random() < 1 / 2 else nbytes - 1 - near


def _range(rng: Random, data: bytearray) -> slice:
    start = _place(rng, len(data))
    return slice(start, start + rng.randrange(1, _MAX_RANGE))


def _flip_a_bit(rng: Random, data: bytearray, _: bytes) -> None:
    data[_place(rng, len(data))] ^= 1 << rng.randrange(8)


def _set_a_byte(rng: Random, data: bytearray, _: bytes) -> None:
    data[_place(rng, len(data))] = rng.randrange(256)


def _set_a_number(rng: Random, data: bytearray, _: bytes) -> None:
    width = rng.choice((1, 2, 4, 8))
    number = rng.choice((*_NUMBERS, len(data), len(data) + 1, len(data) - 1, rng.randrange(len(data))))
    start = _place(rng, len(data)) // width * width if rng.random() < 1 / 2 else _place(rng, len(data))
    order = "little" if rng.random() < 2 / 3 else "big"
    data[start : start + width] = (number % (1 << 8 * width)).to_bytes(width, order)  # type: ignore[arg-type]


def _add_to_a_number(rng: Random, data: bytearray, _: bytes) -> None:
    start = _place(rng, len(data))
    data[start] = (data[start] + rng.choice((-8, -4, -1, 1, 4, 8))) % 256


def _cut(rng: Random, data: bytearray, _: bytes) -> None:
    del data[_place(rng, len(data)) :]


def _remove(rng: Random, data: bytearray, _: bytes) -> None:
    del data[_range(rng, data)]


def _repeat(rng: Random, data: bytearray, _: bytes) -> None:
    taken = data[_range(rng, data)]
    start = _place(rng, len(data))
    data[start:start] = taken * rng.choice((1, 1, 2, 100))


def _copy_within(rng: Random, data: bytearray, _: bytes) -> None:
    taken = data[_range(rng, data)]
    start = _place(rng, len(data))
    data[start : start + len(taken)] = taken


def _take_from_another(rng: Random, data: bytearray, other: bytes) -> None:
    if other:
        taken = other[_range(rng, bytearray(other))]
        start = _place(rng, len(data))
        data[start : start + len(taken)] = taken


def _clear(rng: Random, data: bytearray, _: bytes) -> None:
    place = _range(rng, data)
    data[place] = bytes(len(data[place])) if rng.random() < 1 / 2 else b"\xff" * len(data[place])


_MUTATIONS: tuple[Callable[[Random, bytearray, bytes], None], ...] = (
    *(_flip_a_bit, _set_a_byte, _set_a_number, _set_a_number, _add_to_a_number),
    *(_cut, _remove, _repeat, _copy_within, _take_from_another, _clear),
)
