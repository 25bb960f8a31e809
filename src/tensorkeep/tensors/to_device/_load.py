"""New tensors on a device, of the bytes of any number of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from tensorkeep.arrays import DenseArrays, DeviceMemory, Target, has_device_memory
from tensorkeep.collector import PausedCollector
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import LimitError
from tensorkeep.limits import MAX_NDIM
from tensorkeep.tensors.to_device._options import staging_options
from tensorkeep.tensors.to_device._pipeline import fill_targets
from tensorkeep.tensors.to_device._plan import Part
from tensorkeep.transport import ByteRange, ByteSource

_STAGED_FROM_NBYTES: Final = 2**20
"""Bytes from which a load is staged: threads and buffers take longer to start than fewer bytes take to copy."""


class Staged(msgspec.Struct, frozen=True, eq=False):
    """Tensors of one source to load.

    Attributes:
        source: Has their bytes.
        data_start: The byte of the source from which the entries count.
        entries: The tensors, by name.
    """

    source: ByteSource
    data_start: int
    entries: Mapping[str, TensorEntry]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(entry.nbytes for entry in self.entries.values())


def device_memory_of(adapter: DenseArrays) -> DeviceMemory | None:
    """Return the memory that loads of an adapter pass on to; None if they are not staged."""
    if adapter.is_on_host or not has_device_memory(adapter):
        return None
    return adapter.device_memory()


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


def load_staged(
    device: DeviceMemory, groups: list[Staged], report: Callable[[int], None] | None = None
) -> list[dict[str, Any]]:
    """Load whole tensors, which `can_stage`; a LimitError, before anything is read, if they do not fit."""
    options = staging_options()
    _require_room(device, groups, options.device_budget)
    targets: list[Target] = []
    parts: list[Part] = []
    with PausedCollector():
        for group in groups:
            allocated = device.allocate(group.entries)
            parts += _parts_of(group, allocated, len(targets))
            targets += allocated
        fill_targets(device, targets, parts, options, report)
    tensors = iter(targets)
    return [{name: next(tensors).tensor for name in group.entries} for group in groups]


def _parts_of(group: Staged, targets: list[Target], first: int) -> Iterator[Part]:
    """Yield the parts for targets of one source, which are numbered from `first`."""
    for number, (entry, target) in enumerate(zip(group.entries.values(), targets, strict=True), first):
        start, stop = entry.data_offsets
        span = ByteRange(group.data_start + start, group.data_start + stop)
        yield Part(number, group.source, span, target.stored.itemsize)


def _require_room(device: DeviceMemory, groups: list[Staged], budget: int | None) -> None:
    needed = sum(group.nbytes for group in groups)
    free = device.free_nbytes()
    if budget is not None and needed > budget:
        raise LimitError(
            "the tensors do not fit in the device budget",
            path=groups[0].source.name,
            expected=f"at most {budget:,} bytes",
            found=f"{needed:,} bytes",
            hint="Raise device_budget, or load fewer tensors, or slices of them",
        )
    if free is not None and needed > free:
        raise LimitError(
            "the tensors do not fit in the device's memory",
            path=groups[0].source.name,
            expected=f"at most {free:,} bytes, which are free",
            found=f"{needed:,} bytes",
            hint="Load fewer tensors, or slices of them, or cast them with view.cast",
        )
