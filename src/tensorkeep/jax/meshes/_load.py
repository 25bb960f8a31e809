"""Saved tensors as sharded arrays: each process reads the bytes of its own shards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import jax
import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays.elements import known_dtype
from tensorkeep.arrays.jax.dtypes import array_dtype
from tensorkeep.arrays.jax.memory import ARRAY_CLASS, committed
from tensorkeep.arrays.jax.weak import made_weak
from tensorkeep.errors import DtypeError
from tensorkeep.jax.meshes._read_regions import TensorPart, read_parts
from tensorkeep.jax.meshes._regions import region_of, regions_of
from tensorkeep.parallel import ProgressMeter
from tensorkeep.tensors import LazyTensor, Region

_UNCUT: Final[Any] = jax.sharding.PartitionSpec()  # type: ignore[no-untyped-call]

_AT_ONCE_NBYTES: Final = 2**28
"""Bytes that are read before they are given to devices, so that the host never has all of them."""


class _Shards(msgspec.Struct, frozen=True, eq=False):
    """What this process reads of one tensor.

    Attributes:
        name: Its name.
        lazy: The saved tensor.
        dtype: Of the array.
        sharding: Of the array.
        reads: What is read: the regions, or one region that consists of all of them.
    """

    name: str
    lazy: LazyTensor
    dtype: np.dtype[Any]
    sharding: jax.sharding.Sharding
    reads: list[Region]

    @property
    def nbytes(self) -> int:
        return sum(TensorPart(self.lazy, region).nbytes for region in self.reads)


def load_shards(
    tensors: Mapping[str, LazyTensor],
    shardings: Mapping[str, jax.sharding.Sharding],
    meter: ProgressMeter | None = None,
) -> dict[str, jax.Array]:
    """Load tensors as arrays with the shardings of the same names; parts that several devices have are read once."""
    regions: dict[tuple[Any, tuple[int, ...]], list[Region]] = {}
    wanted = [_shards_of(name, lazy, shardings[name], regions) for name, lazy in tensors.items()]
    arrays: dict[str, jax.Array] = {}
    for batch in _batches(wanted):
        read = read_parts({
            f"{place}/{number}": TensorPart(shards.lazy, region)
            for place, shards in enumerate(batch)
            for number, region in enumerate(shards.reads)
        })
        for place, shards in enumerate(batch):
            arrays[shards.name] = _array_of(
                shards, [read[f"{place}/{number}"] for number in range(len(shards.reads))]
            )
        if meter is not None:
            meter.add(sum(shards.lazy.entry.nbytes for shards in batch))
    return arrays


def _shards_of(
    name: str,
    lazy: LazyTensor,
    sharding: jax.sharding.Sharding,
    regions: dict[tuple[Any, tuple[int, ...]], list[Region]],
) -> _Shards:
    """Return what is read of a tensor; of many with one shape and sharding, this is found out once."""
    try:
        dtype = array_dtype(lazy.reader.cast_to or known_dtype(lazy.name, lazy.entry))
    except DtypeError as error:
        raise error.with_fields(tensor=lazy.name) from None
    key = sharding, lazy.shape
    if key not in regions:
        regions[key] = _joined(regions_of(sharding, lazy.shape, lazy.name))
    return _Shards(name, lazy, dtype, sharding, regions[key])


def _joined(regions: list[Region]) -> list[Region]:
    """Return regions as one, if they fill it."""
    if len(regions) < 2:
        return regions
    starts = tuple(map(min, zip(*(region.starts for region in regions), strict=True)))
    stops = tuple(map(max, zip(*(region.stops for region in regions), strict=True)))
    around = Region(starts, stops)
    return [around] if around.n_elements == sum(region.n_elements for region in regions) else regions


def _batches(wanted: list[_Shards]) -> Iterator[list[_Shards]]:
    batch: list[_Shards] = []
    nbytes = 0
    for shards in wanted:
        if batch and nbytes + shards.nbytes > _AT_ONCE_NBYTES:
            yield batch
            batch, nbytes = [], 0
        batch.append(shards)
        nbytes += shards.nbytes
    if batch:
        yield batch


def _array_of(shards: _Shards, read: list[npt.NDArray[Any]]) -> jax.Array:
    """Make an array of what was read, on the devices of this process."""
    by_region = dict(zip(shards.reads, read, strict=True))
    shape = shards.lazy.shape

    def part(index: Any) -> npt.NDArray[Any]:
        region = region_of(index, shape)
        found = by_region.get(region)
        if found is not None:
            return found
        ((around, whole),) = by_region.items()
        return whole[_index_within(region, around)]

    array: jax.Array = jax.make_array_from_callback(shape, shards.sharding, part, dtype=shards.dtype)
    return array


def _index_within(region: Region, around: Region) -> tuple[slice, ...]:
    """Return the index of a region within one around it."""
    return tuple(
        slice(start - first, stop - first)
        for start, stop, first in zip(region.starts, region.stops, around.starts, strict=True)
    )


def put(value: Any, placement: jax.sharding.Sharding | jax.Device) -> jax.Array:
    """Put an array that every process has whole where it is to be, perhaps on devices of all processes."""
    if isinstance(placement, jax.Device):
        placement = jax.sharding.SingleDeviceSharding(placement)
    if placement.is_fully_addressable:
        there = isinstance(placement, jax.sharding.SingleDeviceSharding) and _is_on(value, placement)
        moved: jax.Array = committed(value, placement) if there else jax.device_put(value, placement)
        return moved
    if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        data = put(jax.random.key_data(value), _replicated(placement))
        wrap = partial(jax.random.wrap_key_data, impl=jax.random.key_impl(value))
        keys: jax.Array = jax.jit(wrap, out_shardings=placement)(data)
        return keys
    whole = np.asarray(value)
    array = jax.make_array_from_callback(whole.shape, placement, whole.__getitem__)
    weak: jax.Array = made_weak(array) if getattr(value, "weak_type", False) else array
    return weak


def _is_on(value: Any, placement: jax.sharding.SingleDeviceSharding) -> bool:
    """Say whether an array of numbers has a placement already, but for being committed to it."""
    return type(value) is ARRAY_CLASS and value.sharding == placement


def _replicated(sharding: Any) -> Any:
    """Return a sharding over the same devices that cuts nothing."""
    is_named = isinstance(sharding, jax.sharding.NamedSharding)
    return jax.sharding.NamedSharding(sharding.mesh, _UNCUT) if is_named else sharding
