"""What a file's header says, counted and put in order. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import translate

import msgspec

from tensorkeep.entries import TensorEntry
from tensorkeep.formats.safetensors import Header

__all__ = ["Order", "Report", "Totals", "is_misaligned", "natural_key", "report_on"]

_MAX_ALIGNMENT_NBYTES = 64
"""The alignment beyond which nobody asks: a cache line, and the widest vector registers."""

_DIGITS = re.compile(r"([0-9]{1,18})")


class Order(StrEnum):
    """What tensors are sorted by."""

    NAME = "name"
    SIZE = "size"
    OFFSET = "offset"


class Totals(msgspec.Struct, frozen=True):
    """Sums over some tensors.

    Attributes:
        n_tensors: Tensors.
        n_elements: Elements of all of them.
        nbytes: Bytes of all of them.
    """

    n_tensors: int
    n_elements: int
    nbytes: int

    @classmethod
    def of(cls, entries: Iterable[TensorEntry]) -> Totals:
        """Count tensors.

        Args:
            entries: The tensors.

        Returns:
            Their sums.
        """
        counts = [(entry.n_elements, entry.nbytes) for entry in entries]
        return cls(len(counts), sum(count for count, _ in counts), sum(nbytes for _, nbytes in counts))


class Report(msgspec.Struct, frozen=True):
    """One file.

    Attributes:
        path: As the caller gave it.
        file_nbytes: Size of the file in bytes.
        data_start: Byte of the file at which the data begins.
        metadata: The file's free text by key, or None where it has none.
        whole: Sums over all tensors of the file.
        n_misaligned: Tensors that do not start at a multiple of their element size.
        shown: The tensors that were asked for, in the order asked for.
    """

    path: str
    file_nbytes: int
    data_start: int
    metadata: dict[str, str] | None
    whole: Totals
    n_misaligned: int
    shown: dict[str, TensorEntry]

    @property
    def header_nbytes(self) -> int:
        """Bytes of the header, without the 8 of its length field."""
        return self.data_start - 8

    @property
    def data_alignment(self) -> int:
        """The largest power of two, in bytes and up to 64, of which the start of the data is a multiple."""
        return min(self.data_start & -self.data_start, _MAX_ALIGNMENT_NBYTES)

    @property
    def totals(self) -> Totals:
        """Sums over the tensors that are shown."""
        return Totals.of(self.shown.values())

    def totals_by_dtype(self) -> dict[str, Totals]:
        """Sum the tensors that are shown by dtype.

        Returns:
            Name of the dtype to sums, most bytes first.
        """
        groups: dict[str, list[TensorEntry]] = {}
        for entry in self.shown.values():
            groups.setdefault(entry.dtype, []).append(entry)
        totals = {dtype: Totals.of(entries) for dtype, entries in groups.items()}
        return dict(sorted(totals.items(), key=lambda item: (-item[1].nbytes, item[0])))


def report_on(
    header: Header, *, path: str, file_nbytes: int, pattern: str | None = None, order: Order = Order.OFFSET
) -> Report:
    """Count a file and choose what is shown of it.

    Args:
        header: The file's header.
        path: The file's name, for the reader.
        file_nbytes: Size of the file in bytes.
        pattern: Names that are shown, with `*`, `?` and `[…]` as in a shell; all if None.
        order: What they are sorted by.

    Returns:
        The report.
    """
    entries = header.entries
    return Report(
        path=path,
        file_nbytes=file_nbytes,
        data_start=header.data_start,
        metadata=header.metadata,
        whole=Totals.of(entries.values()),
        n_misaligned=sum(is_misaligned(entry, header.data_start) for entry in entries.values()),
        shown=_ordered(_matching(entries, pattern), order),
    )


def is_misaligned(entry: TensorEntry, data_start: int) -> bool:
    """Say whether a tensor's first byte is not at a multiple of its element size, counted from the file's start.

    Args:
        entry: The tensor.
        data_start: Byte of the file at which the data begins.

    Returns:
        False too where there is nothing to align: no elements, or a dtype that is unknown or narrower than a byte.
    """
    dtype = entry.known_dtype
    return dtype is not None and entry.nbytes > 0 and (data_start + entry.data_offsets[0]) % dtype.itemsize != 0


def natural_key(name: str) -> list[str | int]:
    """Return a key that sorts `layer.10` after `layer.9`.

    Args:
        name: A name, or a part of one.

    Returns:
        Its text and its numbers by turns.
    """
    parts: list[str | int] = list(_DIGITS.split(name))
    parts[1::2] = map(int, parts[1::2])
    return parts


def _matching(entries: Mapping[str, TensorEntry], pattern: str | None) -> Mapping[str, TensorEntry]:
    if pattern is None:
        return entries
    matches = re.compile(translate(pattern)).match
    return {name: entry for name, entry in entries.items() if matches(name)}


def _ordered(entries: Mapping[str, TensorEntry], order: Order) -> dict[str, TensorEntry]:
    if order is Order.OFFSET:  # the order of a header's entries
        return dict(entries)
    names = sorted(entries, key=natural_key)
    if order is Order.SIZE:
        names.sort(key=lambda name: -entries[name].nbytes)
    return {name: entries[name] for name in names}
