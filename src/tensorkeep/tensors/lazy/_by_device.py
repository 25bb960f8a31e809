"""Tensors that a device computes from stored ones: these are copied to it, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import prod
from typing import Any, Final, Protocol, TypeAlias, TypeGuard

import msgspec

from tensorkeep.arrays import Arithmetic, DenseArrays, DeviceMemory, computes
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.tensors.lazy._lazy import LazyTensor
from tensorkeep.tensors.readers import Reader
from tensorkeep.tensors.to_device import device_memory_of, room_left

COMPUTED_LENGTH: Final = 2**23
"""Elements that a device computes at once, so many that starting its operations takes little of the time."""

_SCRATCH_NBYTES: Final = 24
"""Bytes that computing an element takes meanwhile; GPTQ takes most of all layouts, 23."""

_COMPUTED_FROM_NBYTES: Final = 2**20
"""Bytes of a result from which a device computes it: for fewer, starting that takes most of the time."""

_BATCH_NBYTES: Final = 2**29
"""Bytes of stored tensors that are read together. While some are computed, the next are read."""


class Computation(msgspec.Struct, frozen=True, eq=False):
    """How a device computes one tensor.

    Attributes:
        parts: Role to stored tensor, on the device.
        dtype: The dtype of the result.
        shape: Its shape.
        compute: Takes the device's operations, the stored tensors by role, and a tensor of this shape, and fills it.
    """

    parts: Mapping[str, LazyTensor]
    dtype: DType
    shape: tuple[int, ...]
    compute: Callable[[Arithmetic, Mapping[str, Any], Any], None]

    @property
    def entry(self) -> TensorEntry:
        """The result as an entry of a file."""
        return TensorEntry(self.dtype.name, self.shape, (0, self.dtype.nbytes(prod(self.shape))))

    @property
    def stored_nbytes(self) -> int:
        """Bytes of the stored tensors."""
        return sum(part.nbytes for part in self.parts.values())

    @property
    def scratch_nbytes(self) -> int:
        """Bytes that the device needs to compute it."""
        return _SCRATCH_NBYTES * min(prod(self.shape), COMPUTED_LENGTH)


class ComputingReader(Reader, Protocol):
    """A reader of tensors that some devices can compute."""

    def computation(self, name: str, entry: TensorEntry) -> Computation | None:
        """Return how its device computes a tensor; None if it does not."""


def _is_computing(reader: Reader) -> TypeGuard[ComputingReader]:
    return hasattr(reader, "computation")


def computing_device(adapter: DenseArrays, nbytes: int) -> DeviceMemory | None:
    """Return the memory of an adapter's device if that computes a result of some size."""
    return device_memory_of(adapter) if computes(adapter) and nbytes >= _COMPUTED_FROM_NBYTES else None


class Computed(msgspec.Struct, frozen=True, eq=False):
    """What one device computes.

    Attributes:
        device: Its memory.
        ops: Its operations.
        tensors: Name to how.
    """

    device: DeviceMemory
    ops: Arithmetic
    tensors: dict[str, Computation]

    @property
    def scratch_nbytes(self) -> int:
        """Bytes that the device needs to compute any of them."""
        return max(each.scratch_nbytes for each in self.tensors.values())

    @property
    def nbytes_beside(self) -> int:
        """Bytes that are needed beside all results if the stored tensors are read for one at a time."""
        return self.scratch_nbytes + max(each.stored_nbytes for each in self.tensors.values())

    def batches(self, room: int) -> Iterator[dict[str, Computation]]:
        """Divide them into batches of stored tensors that take some room, and have different names."""
        batch: dict[str, Computation] = {}
        names: set[str] = set()
        nbytes = 0
        for name, each in self.tensors.items():
            own = {part.name for part in each.parts.values()}
            if batch and (nbytes + each.stored_nbytes > room or not names.isdisjoint(own)):
                yield batch
                batch, names, nbytes = {}, set(), 0
            batch[name] = each
            names |= own
            nbytes += each.stored_nbytes
        if batch:
            yield batch


Load: TypeAlias = Callable[[Mapping[str, LazyTensor]], Mapping[str, Any]]
"""Reads whole tensors."""


def computed_of(tensors: Mapping[str, LazyTensor]) -> list[Computed]:
    """Return what devices compute of some tensors, for each of the devices."""
    found: dict[str, Computed] = {}
    for name, lazy in tensors.items():
        reader = lazy.reader
        computation = reader.computation(name, lazy.entry) if _is_computing(reader) else None
        device = device_memory_of(reader.adapter) if computation is not None else None
        if computation is not None and device is not None and computes(reader.adapter):
            if device.name not in found:
                found[device.name] = Computed(device, reader.adapter.arithmetic(), {})
            found[device.name].tensors[name] = computation
    return list(found.values())


def compute_all(
    computed: Iterable[Computed], load: Load, report: Callable[[str], None], taken: Mapping[str, int]
) -> dict[str, Any]:
    """Compute new tensors, which are complete when this returns; names are reported as the tensors are begun.

    `taken` are the bytes of each device, by its name, that all results of the load take.
    """
    loaded: dict[str, Any] = {}
    for each in computed:
        targets = each.device.allocate([computation.entry for computation in each.tensors.values()])
        loaded |= {name: target.tensor for name, target in zip(each.tensors, targets, strict=True)}
        fill_computed(each, loaded, load, report, taken[each.device.name])
    return loaded


def fill_computed(
    computed: Computed, into: Mapping[str, Any], load: Load, report: Callable[[str], None], taken: int = 0
) -> None:
    """Compute tensors into others of the same names and shapes, on the device, of any dtype that numbers have."""
    room = room_left(computed.device, taken)
    free = _BATCH_NBYTES if room is None else room - computed.scratch_nbytes
    for batch in computed.batches(min(_BATCH_NBYTES, free)):
        _fill_batch(computed.ops, batch, into, load, report)
    computed.ops.wait()


def _fill_batch(
    ops: Arithmetic,
    batch: Mapping[str, Computation],
    into: Mapping[str, Any],
    load: Load,
    report: Callable[[str], None],
) -> None:
    """Compute some tensors; the stored ones are not referenced when this returns, before the next are loaded."""
    stored = load({part.name: part for each in batch.values() for part in each.parts.values()})
    for name, each in batch.items():
        each.compute(ops, {role: stored[part.name] for role, part in each.parts.items()}, into[name])
        report(name)
