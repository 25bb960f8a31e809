"""Which tensor goes into which file of a step, so that frozen and trained tensors are separate. Pure.

A file whose tensors have not changed since the previous step is not written again. So a file should hold only tensors
that change, or only tensors that do not. For the first step this is guessed from names and sizes: large matrices that
fine-tuning leaves alone are mixed with small tensors that it trains, and the optimizer's state has other names. Later
steps keep the files of the previous one; a file that turns out to hold both kinds is split.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

_WORTH_NBYTES: Final = 2**16
"""Bytes of unchanged tensors in a file from which splitting it is worthwhile."""

_WORTH_SHARE: Final = 16
"""They must also be at least one in this many bytes of the file."""

_SPARE_FILES: Final = 16
"""If there are more files than twice the necessary number plus this, all tensors are laid out again."""

_CLASS_BITS: Final = 4
"""Each size class reaches up to 2**4 times the one below it."""

_SMALLEST_CLASS: Final = 4
"""The class of all tensors below 512 KiB, such as biases, norms and adapters."""

_WITHOUT_DIGITS: Final = str.maketrans("", "", "0123456789")


def group_tensors(
    sizes: Mapping[str, int],
    *,
    max_nbytes: int,
    before: Iterable[Sequence[str]] = (),
    resting: Collection[str] = frozenset(),
) -> list[list[str]]:
    """Return the names of the tensors in each file, given the files `before` and the tensors that did not change."""
    fresh = _filled(sizes, sizes, resting, max_nbytes)
    kept: list[list[str]] = []
    placed: set[str] = set()
    for names in before:
        remaining = [name for name in names if name in sizes]
        if remaining and not _is_mixed(remaining, sizes, resting):
            kept.append(remaining)
            placed.update(remaining)
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
    """Fill files, each with tensors of one kind: unchanged or not, with one prefix, of one size class."""
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
    """Return the first part of a dotted name, such as `optimizer`, without digits."""
    part, dot, _ = name.partition(".")
    return part.translate(_WITHOUT_DIGITS) if dot else ""


def _size_class(nbytes: int) -> int:
    return max(nbytes.bit_length() // _CLASS_BITS, _SMALLEST_CLASS)
