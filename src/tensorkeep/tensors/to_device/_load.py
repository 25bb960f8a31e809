"""New tensors on devices, of the bytes of any number of files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from tensorkeep.arrays import DenseArrays, DeviceMemory, Target, has_device_memory
from tensorkeep.collector import PausedCollector
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.limits import MAX_NDIM
from tensorkeep.tensors.to_device._devices import fill_each_device
from tensorkeep.tensors.to_device._options import StagingOptions
from tensorkeep.tensors.to_device._pipeline import Filling, Report, buffer_nbytes_of
from tensorkeep.tensors.to_device._plan import Part, plan_tasks
from tensorkeep.tensors.to_device._room import require_room
from tensorkeep.tensors.to_device._together import Together, packed_together
from tensorkeep.transport import ByteRange, ByteSource

_STAGED_FROM_NBYTES: Final = 2**20
"""Bytes from which a load is staged: threads and buffers take longer to start than fewer bytes take to copy."""


class Staged(msgspec.Struct, frozen=True, eq=False):
    """Tensors of one source to load.

    Attributes:
        source: Has their bytes.
        data_start: The byte of the source from which the entries count.
        entries: The tensors, by name.
        cast_to: The dtype of the tensors on the device, which converts them; None for the one of their entries.
    """

    source: ByteSource
    data_start: int
    entries: Mapping[str, TensorEntry]
    cast_to: DType | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors on the device."""
        return sum(entry.nbytes for entry in self.new())

    def new(self) -> Iterator[TensorEntry]:
        """Describe the tensors on the device; their places in the source mean nothing if they are cast."""
        dtype = self.cast_to
        for entry in self.entries.values():
            yield (
                entry
                if dtype is None
                else msgspec.structs.replace(
                    entry, dtype=dtype.name, data_offsets=(0, dtype.nbytes(entry.n_elements))
                )
            )


DeviceLoad: TypeAlias = tuple[DeviceMemory, Sequence[Staged]]
"""A device, and what is loaded to it."""

_Loaded: TypeAlias = list[dict[str, Any]]
"""The tensors of each source, by name."""


def device_memory_of(adapter: DenseArrays) -> DeviceMemory | None:
    """Return the memory that loads of an adapter pass on to; None if they are not staged."""
    if adapter.is_on_host or not has_device_memory(adapter):
        return None
    return adapter.device_memory()


def gathering_device(adapter: DenseArrays, dtype: DType) -> DeviceMemory | None:
    """Return the memory that parts of tensors of a dtype pass on to; None if they are not gathered on the way."""
    device = device_memory_of(adapter)
    return device if device is not None and not dtype.is_packed and adapter.has_dtype(dtype) else None


def are_worth_staging(groups: Iterable[Staged]) -> bool:
    """Say whether tensors are large enough together."""
    return sum(group.nbytes for group in groups) >= _STAGED_FROM_NBYTES


def can_stage(adapter: DenseArrays, entries: Iterable[TensorEntry]) -> bool:
    """Say whether the library has tensors whose memory is what a file holds."""
    dtypes: dict[str, DType | None] = {}
    for entry in entries:
        if entry.dtype not in dtypes:
            dtypes[entry.dtype] = entry.known_dtype
        if len(entry.shape) > MAX_NDIM:
            return False
    return all(dtype is not None and not dtype.is_packed and adapter.has_dtype(dtype) for dtype in dtypes.values())


def load_staged(loads: Sequence[DeviceLoad], report: Report | None = None) -> list[_Loaded]:
    """Load whole tensors, which `can_stage`, to several devices at the same time.

    A LimitError, before anything is read, if they do not fit on one of them.
    """
    for device, groups in loads:
        require_room(device, sum(group.nbytes for group in groups), groups[0].source.name)
    made: list[_Tensors] = []

    def begin(load: DeviceLoad, options: StagingOptions) -> Filling:
        made.append(_Tensors(load, options))
        return made[-1].filling

    with PausedCollector():
        fill_each_device(loads, begin, report)
        return [tensors.by_name() for tensors in made]


class _Tensors:
    """The tensors of one device.

    Attributes:
        filling: Fills them.
    """

    def __init__(self, load: DeviceLoad, options: StagingOptions) -> None:
        self._device, self._groups = load
        self._entries = [entry for group in self._groups for entry in group.new()]
        tasks = plan_tasks(_parts_of(self._groups), buffer_nbytes_of(options))
        self._together: list[Together] = []
        is_cast = any(group.cast_to is not None for group in self._groups)
        if not (options.own or is_cast):
            tasks, self._together = packed_together(tasks, len(self._entries))
        self._targets = _allocated(self._device, self._entries, self._together)
        if is_cast:
            self._targets = _stored_as(self._targets, self._groups)
        self.filling = Filling(self._device, self._targets, tasks, options)

    def by_name(self) -> _Loaded:
        """Return the tensors of each source."""
        entries = self._entries
        tensors = {number: target.tensor for number, target in self._targets.items()}
        for each in self._together:
            places = [(entries[move.target], move.start) for move in each.moves]
            parts = self._device.parts(self._targets[each.target], places)
            tensors |= zip((move.target for move in each.moves), parts, strict=True)
        in_order = (tensors[number] for number in range(len(entries)))
        return [{name: next(in_order) for name in group.entries} for group in self._groups]


def _parts_of(groups: Iterable[Staged]) -> Iterator[Part]:
    """Yield the tensors of all sources, numbered."""
    number = 0
    for group in groups:
        for entry in group.entries.values():
            start, stop = entry.data_offsets
            span = ByteRange(group.data_start + start, group.data_start + stop)
            dtype: Any = entry.known_dtype
            yield Part(number, group.source, span, dtype.itemsize)
            number += 1


def _allocated(
    device: DeviceMemory, entries: Sequence[TensorEntry], together: Sequence[Together]
) -> dict[int, Target]:
    """Allocate what is filled, by number: tensors of their own, and what others are parts of."""
    parts = {move.target for each in together for move in each.moves}
    own = {number: entry for number, entry in enumerate(entries) if number not in parts}
    wholes = {each.target: TensorEntry("U8", (each.nbytes,), (0, each.nbytes)) for each in together}
    return dict(zip([*own, *wholes], device.allocate([*own.values(), *wholes.values()]), strict=True))


def _stored_as(targets: Mapping[int, Target], groups: Iterable[Staged]) -> dict[int, Target]:
    """Return targets that are filled with bytes of the dtypes that tensors have in their sources."""
    dtypes: Any = (entry.known_dtype for group in groups for entry in group.entries.values())
    return {
        number: Target(target.tensor, dtype) for (number, target), dtype in zip(targets.items(), dtypes, strict=True)
    }
