"""How one leaf is saved or restored, as orbax names it."""

from __future__ import annotations

from typing import Any

import jax
import msgspec


class SaveArgs(msgspec.Struct, frozen=True):
    """How a leaf is saved.

    Attributes:
        aggregate: Ignored, as the next two: they concern orbax's files.
        dtype: Must be None: cast before saving.
        chunk_byte_size: Ignored.
        shard_axes: Ignored.
    """

    aggregate: bool = False
    dtype: Any = None
    chunk_byte_size: int | None = None
    shard_axes: tuple[int, ...] = ()


class RestoreArgs(msgspec.Struct, frozen=True):
    """How a leaf is restored.

    Attributes:
        restore_type: `numpy.ndarray` for a NumPy array, `int`, `float` or `bool` for a number; others are JAX arrays.
        dtype: What to cast to; None keeps the saved dtype.
    """

    restore_type: Any = None
    dtype: Any = None


class ArrayRestoreArgs(msgspec.Struct, frozen=True):
    """How an array is restored.

    Attributes:
        restore_type: See `RestoreArgs`.
        dtype: What to cast to; None keeps the saved dtype.
        mesh: With `mesh_axes`, where the array goes.
        mesh_axes: The partition over the mesh.
        sharding: Where the array goes, instead of the two before.
        global_shape: The shape, which must be the saved one; arrays are neither padded nor cut.
        shape: Ignored.
        strict: Ignored: shapes are always compared.
    """

    restore_type: Any = jax.Array
    dtype: Any = None
    mesh: jax.sharding.Mesh | None = None
    mesh_axes: jax.sharding.PartitionSpec | None = None
    sharding: Any = None
    global_shape: tuple[int, ...] | None = None
    shape: tuple[int, ...] | None = None
    strict: bool = True
