"""Whether two pytrees are the same, to the last bit (imports jax)."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def check_equal(one: Any, other: Any) -> None:
    """Assert equal structure, and leaves of equal class, dtype, shape, weakness and bytes."""
    leaves, structure = jax.tree.flatten(one)
    others, other_structure = jax.tree.flatten(other)
    assert structure == other_structure
    for place, (leaf, expected) in enumerate(zip(leaves, others, strict=True)):
        assert type(leaf) is type(expected), (place, leaf, expected)
        if isinstance(leaf, jax.Array):
            assert (leaf.dtype, leaf.shape) == (expected.dtype, expected.shape)
            if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                leaf, expected = jax.random.key_data(leaf), jax.random.key_data(expected)
            assert leaf.weak_type == expected.weak_type, (place, leaf, expected)
        if hasattr(leaf, "dtype"):
            leaf, expected = np.asarray(leaf), np.asarray(expected)
            assert (leaf.dtype, leaf.strides) == (expected.dtype, expected.strides)
            assert leaf.tobytes() == expected.tobytes(), (place, leaf, expected)
        else:
            assert leaf == expected
