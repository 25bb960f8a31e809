"""Which part of an array each device and process has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax

from tensorkeep.errors import UnsupportedError
from tensorkeep.tensors import Region


def region_of(index: Iterable[slice], shape: tuple[int, ...]) -> Region:
    """Return the region that an index of jax selects."""
    bounds = [taken.indices(extent)[:2] for taken, extent in zip(index, shape, strict=True)]
    return Region(tuple(start for start, _ in bounds), tuple(stop for _, stop in bounds))


def owners_of(sharding: Any, shape: tuple[int, ...]) -> dict[Region, tuple[int, ...]]:
    """Return each region of an array to the processes that have it; equal in all processes."""
    owners: dict[Region, set[int]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        owners.setdefault(region_of(index, shape), set()).add(device.process_index)
    return {region: tuple(sorted(owners[region])) for region in sorted(owners)}


def regions_of(sharding: jax.sharding.Sharding, shape: tuple[int, ...], name: str) -> list[Region]:
    """Return the regions of an array that devices of this process have, each once."""
    try:
        indices: Mapping[Any, Any] = sharding.addressable_devices_indices_map(shape)
    except (ValueError, IndexError) as error:  # a dimension that the mesh does not divide, or that is not there
        raise UnsupportedError(
            f"tensor `{name}` cannot be sharded like this", tensor=name, found=f"shape {list(shape)}: {error}"
        ) from None
    return list(dict.fromkeys(region_of(index, shape) for index in indices.values()))
