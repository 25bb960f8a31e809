"""Layers left out of a model, and the others renumbered."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tensorkeep.errors import RefusedError, TensorNotFoundError
from tensorkeep.tensors import LazyTensors, TensorView
from tensorkeep.texts import counted, listed
from tensorkeep.transforms._view import view_of

_match = re.compile(
    r"(?P<stack>(?:.*?\.)?(?:layers|layer|h|blocks|block|blk))"  # the outermost, if stacks are inside each other
    r"\.(?P<number>0|[1-9][0-9]{0,5})(?P<rest>\..*)",
    re.DOTALL,
).fullmatch

_MAX_SHOWN: Final = 10


def drop_layers(tensors: LazyTensors, layers: Iterable[int], stack: str | None = None) -> TensorView:
    """Return a view without some layers; the remaining ones are renumbered.

    Args:
        tensors: An open file, a checkpoint or a view.
        layers: The numbers of the layers to leave out, from 0.
        stack: The name before the numbers, such as `"model.layers"`; may be None if there is only one stack.

    Raises:
        TensorNotFoundError: If there is no such stack or layer (also a KeyError).
        RefusedError: If there are several stacks and none is chosen, or no layer would be left.
    """
    numbers = layers_of(tensors, stack)
    [chosen] = numbers
    dropped = set(layers)
    missing = sorted(dropped - numbers[chosen])
    if missing or not dropped:
        raise TensorNotFoundError(
            "there are no such layers" if missing else "there are no layers to drop",
            path=tensors.path,
            expected=f"numbers of `{chosen}`, from {min(numbers[chosen])} to {max(numbers[chosen])}",
            found=listed(map(str, missing), _MAX_SHOWN) or None,
        )
    kept = sorted(numbers[chosen] - dropped)
    if not kept:
        raise RefusedError(f"no layer of `{chosen}` would be left", path=tensors.path)
    new_number = {old: new for new, old in enumerate(kept)}
    new = {}
    for name, lazy in tensors.items():
        found = _match(name)
        if found is None or found["stack"] != chosen:
            new[name] = lazy
        elif int(found["number"]) in new_number:
            new[f"{chosen}.{new_number[int(found['number'])]}{found['rest']}"] = lazy
    return view_of(tensors, new)


def layers_of(tensors: LazyTensors, stack: str | None = None) -> dict[str, set[int]]:
    """Return the numbers of the layers of one stack, by its name."""
    stacks: dict[str, set[int]] = {}
    for found in map(_match, tensors):
        if found is not None:
            stacks.setdefault(found["stack"], set()).add(int(found["number"]))
    if stack is None and len(stacks) == 1:
        return stacks
    if stack in stacks:
        return {stack: stacks[stack]}
    sizes = (f"`{name}` with {counted(len(numbers), 'layer')}" for name, numbers in stacks.items())
    names = listed(sizes, _MAX_SHOWN)
    if stack is None and stacks:
        raise RefusedError(
            "there are several stacks of layers",
            path=tensors.path,
            found=names,
            hint="Choose one with stack= (--stack)",
        )
    if not stacks:
        raise TensorNotFoundError(
            "there are no numbered layers",
            path=tensors.path,
            expected="names such as `model.layers.0.mlp.weight`",
            found=listed((f"`{name}`" for name in tensors), _MAX_SHOWN) or "no tensors",
        )
    raise TensorNotFoundError(
        "there is no such stack of layers", path=tensors.path, expected=names, found=f"`{stack}`"
    )
