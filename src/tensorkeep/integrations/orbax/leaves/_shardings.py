"""The shardings that arrays were saved with: without a template, arrays are restored with these, as by orbax."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import jax
import msgspec
import numpy as np

from tensorkeep.state import joined, text_of_key

OF_ARRAYS: Final = "orbax.shardings"
"""Key of metadata with the shardings of the arrays that are on several devices, as JSON."""

_Spec = list[str | list[str] | None]


class SavedSharding(msgspec.Struct, frozen=True):
    """A `NamedSharding`, and the arrays that have it.

    Attributes:
        axes: The size of each axis of the mesh, in order.
        types: The type of each, such as `"Auto"`.
        devices: The number of each device, in the order of the mesh.
        spec: What each dimension of an array is divided by: an axis, several, or nothing.
        memory: The kind of memory of the devices; None for their default.
        arrays: The names of the arrays.
    """

    axes: dict[str, int]
    types: list[str]
    devices: list[int]
    spec: _Spec
    memory: str | None
    arrays: list[str]

    def made(self) -> jax.sharding.NamedSharding | None:
        """Return the sharding; None if it is not one, or not all of its devices are here."""
        here = {device.id: device for device in jax.devices()}
        types: list[Any] = [getattr(jax.sharding.AxisType, name, None) for name in self.types]
        used = [
            name for axes in self.spec if axes is not None for name in ([axes] if isinstance(axes, str) else axes)
        ]
        are_usable = _are_distinct(used) and _are_distinct(self.devices) and None not in types
        if not are_usable or not self.devices or not here.keys() >= set(self.devices):
            return None
        spec = [tuple(axes) if isinstance(axes, list) else axes for axes in self.spec]
        partition: Any = jax.sharding.PartitionSpec
        try:
            devices = np.array([here[number] for number in self.devices]).reshape(tuple(self.axes.values()))
            mesh = jax.sharding.Mesh(devices, tuple(self.axes), axis_types=tuple(types))
            return jax.sharding.NamedSharding(mesh, partition(*spec), memory_kind=self.memory)
        except (RuntimeError, TypeError, ValueError):  # RuntimeError: more axes than an array of NumPy can have
            return None


class SavedShardings:
    """The shardings of arrays by name, at one place of a tree."""

    def __init__(self, saved: Iterable[SavedSharding] = ()) -> None:
        self._by_name = {name: sharding for each in saved if (sharding := each.made()) for name in each.arrays}
        self._path = ""

    def below(self, key: str) -> SavedShardings:
        """Return those below a key."""
        below = SavedShardings()
        below._by_name, below._path = self._by_name, joined(self._path, key)
        return below

    def of(self, path: Iterable[Any], shape: tuple[int, ...]) -> jax.sharding.NamedSharding | None:
        """Return the sharding of the array to which keys of a pytree lead; None if it does not divide the shape."""
        texts = (text_of_key(getattr(entry, "key", getattr(entry, "idx", entry))) for entry in path)
        sharding = self._by_name.get(reduce(joined, texts, self._path))
        if sharding is None or len(sharding.spec) > len(shape):
            return None
        try:
            sharding.shard_shape(shape)
        except ValueError:
            return None
        return sharding


def saved_shardings(tree: Any) -> list[SavedSharding]:
    """Return the shardings of the arrays in plain nested data that are on several devices."""
    found: dict[str, jax.sharding.NamedSharding | None] = {}
    for name, leaf in _leaves(tree, ""):
        sharding = leaf.sharding if isinstance(leaf, jax.Array) and not leaf.is_deleted() else None
        is_kept = isinstance(sharding, jax.sharding.NamedSharding) and len(sharding.device_set) > 1
        # Of two places with one name, such as "a.b" and "b" in "a", neither has a sharding.
        found[name] = sharding if is_kept and name not in found else None  # type: ignore[assignment]
    groups: dict[jax.sharding.NamedSharding, list[str]] = {}
    for name, each in found.items():
        if each is not None:
            groups.setdefault(each, []).append(name)
    return [_described(sharding, names) for sharding, names in groups.items() if _spec_of(sharding) is not None]


def _are_distinct(values: Sequence[object]) -> bool:
    return len(set(values)) == len(values)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    items: Iterable[tuple[Any, Any]] | None = None
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    if items is None:
        yield path, value
        return
    for key, child in items:
        yield from _leaves(child, joined(path, text_of_key(key)))


def _described(sharding: jax.sharding.NamedSharding, names: list[str]) -> SavedSharding:
    mesh: Any = sharding.mesh
    return SavedSharding(
        axes=dict(mesh.shape),
        types=[kind.name for kind in mesh.axis_types],
        devices=[device.id for device in mesh.devices.flat],
        spec=_spec_of(sharding) or [],
        memory=sharding.memory_kind,
        arrays=names,
    )


def _spec_of(sharding: jax.sharding.NamedSharding) -> _Spec | None:
    """Return what divides each dimension; None if that is more than names of axes."""
    spec = [list(axes) if isinstance(axes, tuple) else axes for axes in sharding.spec]
    return spec if all(axes is None or isinstance(axes, str | list) for axes in spec) else None
