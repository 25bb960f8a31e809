"""Opening what a function is given: checkpoints and patches, by path or already open."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TypeAlias

from tensorkeep.checkpoint import open_checkpoint
from tensorkeep.deltas.reading import Patch
from tensorkeep.patches.opening._copy import on_this_machine
from tensorkeep.tensors import LazyTensors

Checkpoint: TypeAlias = str | os.PathLike[str] | LazyTensors
"""A path or URL, or what is open already."""


def opened(checkpoint: Checkpoint, stack: ExitStack) -> LazyTensors:
    """Return open tensors; what is opened here is closed with the stack."""
    return checkpoint if isinstance(checkpoint, LazyTensors) else stack.enter_context(open_checkpoint(checkpoint))


def opened_patches(patches: Iterable[Checkpoint], stack: ExitStack) -> list[Patch]:
    """Return open patches."""
    return [_opened_patch(patch, stack) for patch in patches]


def _opened_patch(patch: Checkpoint, stack: ExitStack) -> Patch:
    if isinstance(patch, LazyTensors):
        return Patch.of(patch, patch.path)
    path = os.fspath(patch)
    return Patch.of(stack.enter_context(open_checkpoint(on_this_machine(path, stack))), path)
