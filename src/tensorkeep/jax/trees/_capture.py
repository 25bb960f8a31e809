"""A pytree as dicts, lists and tuples, which every save function takes and every reader understands."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax

from tensorkeep.collector import PausedCollector
from tensorkeep.errors import LimitError, StateError
from tensorkeep.jax.trees._branches import Branches
from tensorkeep.limits import MAX_STATE_DEPTH
from tensorkeep.state import joined, text_of_key, words_for


def capture(tree: Any) -> Any:
    """Take a pytree apart into plain nested data, which every save function accepts.

        store.save(step, tensorkeep.jax.capture(state), metrics={"loss": loss})

    Lists, tuples and dicts stay what they are. Everything else that jax knows as a pytree becomes a dict of its
    fields: dataclasses, named tuples such as optax's states, flax's `TrainState`, `FrozenDict` and `nnx.State`. So
    tensors get obvious names, such as `params.Dense_0.kernel`. Static fields, such as `apply_fn`, are not data:
    `restore` takes them from its template. Modules, optimizers and `Rngs` of nnx become their `nnx.state`, and a
    variable becomes its value.

    Leaves stay as they are: JAX arrays on any device and with any sharding, random keys (`jax.random.key`), NumPy
    arrays and numbers, Python numbers, text, None.

    Args:
        tree: Any pytree.

    Returns:
        The same leaves in dicts, lists and tuples.

    Raises:
        StateError: If an array is traced, or two keys of one branch have the same text, such as 1 and "1".
        LimitError: If the tree is nested too deeply, or contains itself.
    """
    try:
        with PausedCollector():
            return _Capture().of(tree, "", 0)
    except RecursionError:
        raise LimitError("the tree is too deep for Python's stack") from None


class _Capture:
    """One walk through a pytree."""

    def __init__(self) -> None:
        self._branches = Branches()

    def of(self, value: Any, path: str, depth: int) -> Any:
        """Return a value as plain data."""
        branch = self._branches.of(value)
        if branch is None:
            _refuse_traced(value, path)
            return value
        check_depth(depth, path)
        if branch.form == "wrapper":
            return self.of(branch.children[0], path, depth + 1)
        texts = [text_of_key(key) for key in branch.keys]
        items = []
        for text, child in zip(texts, branch.children, strict=True):
            items.append(self.of(child, joined(path, text), depth + 1))
        if branch.form == "mapping":
            _refuse_equal(texts, path)
            return dict(zip(branch.keys, items, strict=True))
        return tuple(items) if branch.form == "tuple" else items


def _refuse_equal(texts: list[str], path: str) -> None:
    if len(set(texts)) < len(texts):
        text, _ = Counter(texts).most_common(1)[0]
        raise StateError(
            f"two keys of {words_for(path)} are the same as text", found=repr(text), hint="Give them different names"
        )


def _refuse_traced(value: Any, path: str) -> None:
    if isinstance(value, jax.core.Tracer):
        raise StateError(
            f"{words_for(path)} is traced, and has no value yet",
            found=type(value).__name__,
            hint="Save what a jitted function returns, not inside it",
        )


def check_depth(depth: int, path: str) -> None:
    """Refuse a tree that is nested too deep."""
    if depth >= MAX_STATE_DEPTH:
        raise LimitError(
            f"{words_for(path)} is nested too deep",
            expected=f"at most {MAX_STATE_DEPTH} levels",
            hint="A tree that contains itself cannot be saved",
        )
