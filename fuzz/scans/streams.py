"""Pickles in a row, and legacy files of torch."""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable
from functools import cache

from fuzz.pickle_mutations import mutated
from fuzz.pickle_seeds import Parts, files, parts_of, seeds
from fuzz.scans.chance import Chance
from fuzz.scans.frames import framed
from fuzz.scans.programs import Program

__all__ = ["MAGIC", "legacy", "program", "state_dict", "stream"]

MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_VERSION = b"\x80\x02M\xe9\x03."
_SYSTEM = b"\x80\x02}q\x00(X\x10\0\0\0protocol_versionq\x01M\xe9\x03X\r\0\0\0little_endianq\x02\x88u."


def program(chance: Chance, inner: Callable[[], bytes] | None = None) -> Parts:
    """Return one random pickle, without frames."""
    writer = Program(chance, chance.choice((0, 0, 1, 2, 2, 3, 4, 4, 5)), inner)
    writer.value()
    return writer.finish()


def state_dict(chance: Chance, inner: Callable[[], bytes] | None = None) -> bytes:
    """Return a pickle of arrays, whose elements are in the pickle itself."""
    chance.note("arrays in a pickle")
    writer = Program(chance, chance.choice((3, 4, 4, 5)), inner)
    writer.arrays()
    parts = writer.finish()
    return framed(chance, parts) if chance.often(0.4) else b"".join(parts)


def stream(chance: Chance, inner: Callable[[], bytes] | None = None) -> bytes:
    """Return one or several pickles, with anything between them."""
    if chance.often(0.15):
        chance.note("a broken seed")
        return mutated(chance, seeds())
    n_pickles = chance.choice((1, 1, 1, 2, 2, 3, 5))
    parts: Parts = []
    for number in range(n_pickles):
        parts += program(chance, inner)
        if chance.often(0.1) and number + 1 < n_pickles:
            chance.note("something between pickles")
            parts.append(chance.choice((b"\0", b"\n", chance.sled())))
    if n_pickles > 1:
        chance.note("several pickles")
    if chance.often(0.1):
        chance.note("something after pickles")
        parts.append(chance.choice((b"\0", bytes(30), chance.sled(), chance.randbytes(20))))
    return framed(chance, parts)


@cache
def _legacy_seeds() -> list[tuple[list[Parts], bytes]]:
    """Return the five pickles and the storages of legacy files."""
    found = []
    for file in files():
        if file.startswith(MAGIC):
            data = io.BytesIO(file)
            pickles = []
            for _ in range(5):
                begin = data.tell()
                for _ in pickletools.genops(data):
                    pass
                pickles.append(parts_of(file[begin : data.tell()]))
            found.append((pickles, data.read()))
    return found


def legacy(chance: Chance, inner: Callable[[], bytes] | None = None) -> bytes:
    """Return a legacy file of torch."""
    chance.note("legacy")
    if chance.often(0.5):
        pickles, storages = chance.choice(_legacy_seeds())
        pickles = list(pickles)
    else:
        pickles = [
            parts_of(MAGIC),
            parts_of(_VERSION),
            parts_of(_SYSTEM),
            program(chance, inner),
            parts_of(b"\x80\x02]."),
        ]
        storages = chance.choice((b"", b"", chance.sled()))
    if chance.often(0.5):
        place = chance.randrange(5)
        pickles[place] = program(chance, inner)
        if place < 3 or chance.often(0.5):  # its value must stay what torch expects
            end = {0: b"0\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", 1: b"0M\xe9\x03.", 2: b"0}.", 3: b"0}.", 4: b"0]."}[place]
            pickles[place] = [*pickles[place][:-1], end[:1], end[1:-1], end[-1:]]
    if chance.often(0.3):
        return b"".join(framed(chance, pickle) for pickle in pickles) + storages
    return framed(chance, [part for pickle in pickles for part in pickle]) + storages
