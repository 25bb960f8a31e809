"""Which tensor goes into which file of a step, so that what rests and what changes lie apart. Pure.

A file whose tensors have not changed since the step before is not written again. So files should hold nothing but
tensors that rest, or nothing but such that change. Of a first step nobody knows which those are, and names and sizes
have to tell: large matrices that a fine-tune leaves alone stand between small ones that it trains, and under another
name than the state of its optimizer. Later steps keep the files of the one before. Where it turns out that a file
holds tensors of both kinds, they are taken apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

_WORTH_NBYTES: Final = 2**16
"""Bytes of resting tensors from which a file is worth taking apart."""

_WORTH_SHARE: Final = 16
"""The share of a file that they must be: one in so many bytes."""

_SPARE_FILES: Final = 16
"""Files beyond twice as many as needed, from which on all tensors are laid out anew."""

_CLASS_BITS: Final = 4
"""Each class of sizes goes up to 16 times that of the one below it."""

_SMALLEST_CLASS: Final = 4
"""That of all tensors below 512 KiB; biases, norms and adapters are there."""


_WITHOUT_DIGITS: Final = str.maketrans("", "", "0123456789")


def group_tensors(
    sizes: Mapping[str, int],
    *,
    max_nbytes: int,
    before: Iterable[Sequence[str]] = (),
    resting: Collection[str] = frozenset(),
) -> list[list[str]]:
    """Give each tensor to a file."""
    fresh = _filled(sizes, sizes, resting, max_nbytes)
    kept: list[list[str]] = []
    placed: set[str] = set()
    for names in before:
        there = [name for name in names if name in sizes]
        if there and not _is_mixed(there, sizes, resting):
            kept.append(there)
            placed.update(there)
    groups = kept + _filled([name for name in sizes if name not in placed], sizes, resting, max_nbytes)
    return groups if len(groups) <= 2 * len(fresh) + _SPARE_FILES else fresh


def _is_mixed(names: Iterable[str], sizes: Mapping[str, int], resting: Collection[str]) -> bool:
    nbytes = sum(sizes[name] for name in names)
    nbytes_resting = sum(sizes[name] for name in names if name in resting)
    is_worth_it = nbytes_resting >= max(_WORTH_NBYTES, nbytes // _WORTH_SHARE)
    return is_worth_it and nbytes_resting < nbytes


def _filled(
    names: Iterable[str], sizes: Mapping[str, int], resting: Collection[str], max_nbytes: int
) -> list[list[str]]:
    """Fill files with tensors of one kind each."""
    kinds: dict[tuple[bool, str, int], list[list[str]]] = {}
    room: dict[tuple[bool, str, int], int] = {}
    for name in names:
        kind = (name in resting, _part(name), _size_class(sizes[name]))
        files = kinds.setdefault(kind, [])
        if not files or sizes[name] > room[kind]:
            files.append([])
            room[kind] = max_nbytes
        files[-1].append(name)
        room[kind] -= sizes[name]
    return [file for files in kinds.values() for file in files]


def _part(name: str) -> str:
    """Return the first part of a name with dots, such as `optimizer`, without what only counts."""
    part, dot, _ = name.partition(".")
    return part.translate(_WITHOUT_DIGITS) if dot else ""


def _size_class(nbytes: int) -> int:
    return max(nbytes.bit_length() // _CLASS_BITS, _SMALLEST_CLASS)
