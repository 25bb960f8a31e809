"""Frames around opcodes: honest, too long, too short, nested, crossing, ending inside an opcode."""

from __future__ import annotations

from collections.abc import Sequence

from fuzz.scans.chance import Chance

__all__ = ["framed"]


def framed(chance: Chance, parts: Sequence[bytes]) -> bytes:
    """Return opcodes as bytes, with FRAME opcodes at random places.

    Args:
        chance: Where chance comes from.
        parts: Opcodes of one pickle, or of several in a row.
    """
    parts = list(parts)
    roll = chance.random()
    if roll < 0.35 or not parts:
        return b"".join(parts)
    if roll < 0.5:
        first = 1 if parts[0][:1] == b"\x80" else 0
        return b"".join([*parts[:first], _frame(sum(map(len, parts[first:]))), *parts[first:]])
    places = sorted((_place(chance, parts) for _ in range(chance.choice((1, 1, 2, 3)))), reverse=True)
    for place in places:  # the last one first, so that a length counts the frames inside
        parts.insert(place, _frame(_length(chance, parts[place:])))
    return b"".join(parts)


def _place(chance: Chance, parts: Sequence[bytes]) -> int:
    starts = [number + 1 for number, part in enumerate(parts) if part[:1] == b"\x80"]
    return chance.choice(starts) if starts and chance.often(0.5) else chance.randrange(len(parts) + 1)


def _length(chance: Chance, rest: Sequence[bytes]) -> int:
    exact = sum(map(len, rest[: chance.randrange(len(rest) + 1)]))
    roll = chance.random()
    if roll < 0.4:
        chance.note("frame: to another opcode")
        return exact
    if roll < 0.7:
        chance.note("frame: cuts an opcode")
        return max(0, exact + chance.choice((-9, -3, -2, -1, 1, 2, 3, 4, 6)))
    if roll < 0.85:
        stop = next((number for number, part in enumerate(rest) if part == b"."), len(rest) - 1)
        chance.note("frame: longer than its pickle")
        return sum(map(len, rest[: stop + 1])) + chance.choice((1, 2, 4, 8, 30, 100, 5_000))
    chance.note("frame: any length")
    return chance.choice((0, 1, 2, 8, 255, sum(map(len, rest)), 65_536, 2**31, 2**63 - 1, 2**63))


def _frame(nbytes: int) -> bytes:
    return b"\x95" + nbytes.to_bytes(8, "little")
