"""Where each leaf of a template goes: the structure of `shardings`, and what the template says without it."""

from __future__ import annotations

from typing import Any

import jax

from tensorkeep.errors import UnsupportedError
from tensorkeep.jax.trees._branches import Branches
from tensorkeep.state import text_of_key, words_for
from tensorkeep.texts import listed

Placement = Any
"""A `jax.sharding.Sharding` or `jax.Device`; None for jax's default."""


def shardings_below(shardings: Any, branches: Branches, texts: list[str], path: str) -> list[Any]:
    """Return the part of `shardings` for each child of a branch, by its key as text."""
    if _is_placement(shardings):
        return [shardings] * len(texts)
    branch = branches.of(shardings)
    found = {} if branch is None else dict(zip(map(text_of_key, branch.keys), branch.children, strict=True))
    if branch is None or found.keys() != set(texts):
        raise UnsupportedError(
            f"`shardings` does not have the structure of the tree at {words_for(path)}",
            expected=f"a sharding, a device, None, or the keys {listed(texts)}",
            found=type(shardings).__name__ if branch is None else listed(found) or "no keys",
        )
    return [found[text] for text in texts]


def sharding_within(shardings: Any, branches: Branches) -> Any:
    """Return the part of `shardings` for what a variable holds, whether or not it is in a variable too."""
    branch = branches.of(shardings)
    return branch.children[0] if branch is not None and branch.form == "wrapper" else shardings


def _is_placement(value: Any) -> bool:
    """Say whether a value says where arrays are to be."""
    return value is None or isinstance(value, jax.sharding.Sharding | jax.Device)


def placement_of(like: Any, shardings: Any, path: str) -> Placement:
    """Return where a leaf of a template goes: where the caller says, or else where the template is."""
    if not _is_placement(shardings):
        raise UnsupportedError(
            f"`shardings` has a container where the tree has a leaf, at {words_for(path)}",
            expected="a jax.sharding.Sharding, a jax.Device or None",
            found=type(shardings).__name__,
        )
    is_placed = isinstance(like, jax.ShapeDtypeStruct) or (isinstance(like, jax.Array) and like.committed)
    return _with_devices(like.sharding if shardings is None and is_placed else shardings, path)


def _with_devices(placement: Placement, path: str) -> Placement:
    """Return a placement; one over an abstract mesh, as `jax.eval_shape` gives it, over the mesh that is set."""
    mesh = getattr(placement, "mesh", None)
    if not isinstance(mesh, jax.sharding.AbstractMesh):
        return placement
    concrete = jax.sharding.get_mesh()
    if concrete.empty or concrete.abstract_mesh != mesh:
        raise UnsupportedError(
            f"the sharding of {words_for(path)} is over a mesh without devices",
            hint="Load within jax.set_mesh(mesh), or pass shardings=",
        )
    return jax.sharding.NamedSharding(concrete, placement.spec)
