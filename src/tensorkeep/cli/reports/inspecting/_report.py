"""The headers of a file, or of all shards of a checkpoint: counted, filtered and sorted. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import translate
from typing import TYPE_CHECKING

import msgspec

from tensorkeep.cli.reports.inspecting._state import StateReport
from tensorkeep.entries import TensorEntry
from tensorkeep.transport import without_secrets

if TYPE_CHECKING:
    from tensorkeep.formats import Description, Digests, FileDescription
    from tensorkeep.kinds import LeftOut
    from tensorkeep.quantized import Layouts


_MAX_ALIGNMENT_NBYTES = 64
"""Largest alignment of interest: a cache line, and the widest vector registers."""

_DIGITS = re.compile(r"([0-9]{1,18})")


class Order(StrEnum):
    """How tensors are sorted."""

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
    def of(cls, entries: Iterable[TensorEntry], n_storages: int = 0) -> Totals:
        """Count tensors; those that are stored inside others have no elements or bytes of their own."""
        counts = [(entry.n_elements if entry.nbytes else 0, entry.nbytes) for entry in entries]
        n_elements = sum(count for count, _ in counts)
        return cls(len(counts) - n_storages, n_elements, sum(nbytes for _, nbytes in counts))


class Report(msgspec.Struct, frozen=True):
    """One file, or all shards of one checkpoint.

    Attributes:
        path: As given.
        index: Name of the index, or None for a single file.
        files: What each file holds, in order.
        whole: Sums over all tensors.
        n_misaligned: Tensors that do not start at a multiple of their element size.
        shown: The requested tensors, in the requested order; offsets count from the start of the data in the
            tensor's own file.
        shards: Name of a tensor to the index of its file in `files`.
        splits: Name of a tensor that is cut over shards to the names of its pieces, which are listed as tensors.
        state: The metadata about a state, or None.
        strings: Name of each array of strings to what it is.
        unknowns: Name of each object that is not read to what it is.
        quantized: Which tensors are quantized, and how; None if none are.
    """

    path: str
    index: str | None
    files: tuple[FileDescription, ...]
    whole: Totals
    n_misaligned: int
    shown: dict[str, TensorEntry]
    shards: dict[str, int]
    splits: Mapping[str, tuple[str, ...]]
    state: StateReport | None = None
    strings: Mapping[str, str] = {}
    unknowns: Mapping[str, str] = {}
    quantized: Layouts | None = None

    @property
    def form(self) -> str:
        """The format of the files."""
        return self.files[0].form if self.files else "safetensors"

    @property
    def is_safetensors(self) -> bool:
        """Whether the files have safetensors headers to report on."""
        return self.form == "safetensors"

    @property
    def dangers(self) -> dict[str, str]:
        """Names that could only do harm, and why."""
        return {name: reason for content in self.files for name, reason in content.dangers.items()}

    @property
    def file_nbytes(self) -> int:
        """Bytes of all files."""
        return sum(content.file_nbytes for content in self.files)

    @property
    def header_nbytes(self) -> int:
        """Bytes of all headers, without the 8 of each length field."""
        return sum(content.data_start - 8 for content in self.files if content.form == "safetensors")

    @property
    def data_start(self) -> int | None:
        """Byte of the file at which the data begins; None if there are several files."""
        return self.files[0].data_start if self.index is None else None

    @property
    def data_alignment(self) -> int:
        """The largest power of two, up to 64 bytes, that the start of each file's data is a multiple of."""
        starts = [content.data_start for content in self.files if content.data_start]
        return min([_MAX_ALIGNMENT_NBYTES, *(start & -start for start in starts)])

    @property
    def metadata(self) -> Mapping[str, str] | None:
        """The metadata of the first file, which a save gives to all files; without the names of tied tensors."""
        metadata = self.files[0].metadata if self.files else None
        if metadata is None or self.state is None:
            return metadata
        tied = {name: view.alias.of for name, view in self.state.views.items()}
        return {key: text for key, text in metadata.items() if tied.get(key) != text}

    @property
    def digests(self) -> Digests:
        """Which tensors have a digest."""
        found = {content.digests for content in self.files} or {"none"}
        if "stale" in found:
            return "stale"
        return "some" if len(found) > 1 else next(iter(found))

    @property
    def totals(self) -> Totals:
        """Sums over the tensors that are shown."""
        return Totals.of(self.shown.values(), self._n_storages(self.shown))

    def totals_by_dtype(self) -> dict[str, Totals]:
        """Sum the tensors that are shown by dtype."""
        groups: dict[str, dict[str, TensorEntry]] = {}
        for name, entry in self.shown.items():
            groups.setdefault(entry.dtype, {})[name] = entry
        totals = {dtype: Totals.of(group.values(), self._n_storages(group)) for dtype, group in groups.items()}
        return dict(sorted(totals.items(), key=lambda item: (-item[1].nbytes, item[0])))

    def _n_storages(self, names: Iterable[str]) -> int:
        return len(self.state.storages.keys() & names) if self.state else 0

    def note_of(self, name: str) -> str:
        """Return a note about a tensor's memory; empty if the tensor shares none."""
        return self.state.note_of(name) if self.state else ""

    def in_a_row(self) -> Mapping[str, TensorEntry]:
        """Return the shown tensors with offsets that continue from file to file."""
        if self.index is None:
            return self.shown
        starts = [0]
        for content in self.files:
            starts.append(starts[-1] + content.file_nbytes)
        return {name: _shifted(entry, starts[self.shards[name]]) for name, entry in self.shown.items()}

    def file_of(self, name: str) -> str:
        """Return the name of the file that stores a tensor."""
        return self.files[self.shards[name]].file


def report_on(
    description: Description,
    *,
    path: str,
    state: StateReport | None = None,
    left_out: Iterable[LeftOut] = (),
    quantized: Layouts | None = None,
    pattern: str | None = None,
    order: Order = Order.OFFSET,
) -> Report:
    """Count the contents of files, and choose the tensors to show."""
    files, splits = description.files, description.splits
    entries = {name: entry for file in files for name, entry in file.entries.items()}
    shards = {name: place for place, file in enumerate(files) for name in file.entries}
    left_out = list(left_out)
    for name, view in state.views.items() if state else ():
        entries[name] = view.entry
        shards[name] = shards[splits[view.alias.of][0] if view.alias.of in splits else view.alias.of]
    return Report(
        path=str(without_secrets(path)),
        index=description.index,
        files=files,
        whole=Totals.of(entries.values(), len(state.storages) if state else 0),
        n_misaligned=sum(is_misaligned(entry, file.data_start) for file in files for entry in file.entries.values()),
        shown=_ordered(_matching(entries, pattern), order),
        shards=shards,
        splits=splits,
        state=state,
        strings={other.name: other.what for other in left_out if other.is_data},
        unknowns={other.name: other.what for other in left_out if not other.is_data},
        quantized=quantized,
    )


def is_misaligned(entry: TensorEntry, data_start: int) -> bool:
    """Say whether a tensor does not start at a multiple of its element size, counted from the start of the file."""
    dtype = entry.known_dtype
    return dtype is not None and entry.nbytes > 0 and (data_start + entry.data_offsets[0]) % dtype.itemsize != 0


def natural_key(name: str) -> list[str | int]:
    """Return a key that sorts `layer.10` after `layer.9`."""
    parts: list[str | int] = list(_DIGITS.split(name))
    parts[1::2] = map(int, parts[1::2])
    return parts


def _shifted(entry: TensorEntry, nbytes: int) -> TensorEntry:
    start, stop = entry.data_offsets
    return TensorEntry(entry.dtype, entry.shape, (start + nbytes, stop + nbytes))


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
