"""What `orbax.checkpoint.checkpoint_utils` has for restoring."""

from __future__ import annotations

from typing import Any

import jax

from tensorkeep.integrations.orbax.leaves import ArrayRestoreArgs, RestoreArgs

__all__ = ["construct_restore_args"]


def construct_restore_args(target: Any, sharding_tree: Any = None, set_global_shape: bool = True) -> Any:
    """Return arguments that restore each leaf like a template's.

    Args:
        target: A pytree of arrays, `jax.ShapeDtypeStruct` or numbers.
        sharding_tree: A pytree of shardings with its structure; None for the shardings of its leaves.
        set_global_shape: Whether restored arrays must have the shapes of the template.

    Returns:
        A pytree of `ArrayRestoreArgs` and `RestoreArgs` with the same structure.

    Raises:
        ValueError: If `sharding_tree` has another structure.
    """

    def of(leaf: Any, sharding: Any = None) -> Any:
        if not isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
            return RestoreArgs(type(leaf), getattr(leaf, "dtype", None))
        return ArrayRestoreArgs(
            dtype=leaf.dtype,
            sharding=leaf.sharding if sharding is None else sharding,
            global_shape=leaf.shape if set_global_shape else None,
        )

    return jax.tree.map(of, target) if sharding_tree is None else jax.tree.map(of, target, sharding_tree)
