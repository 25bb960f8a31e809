"""Opening what a function is given: checkpoints and patches, by path or already open."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import TypeAlias

from tensorkeep.checkpoint import open_with
from tensorkeep.deltas.reading import Patch
from tensorkeep.encryption import Encryption, KeyLike, Keys
from tensorkeep.kinds import OpenOptions
from tensorkeep.patches.opening._copy import on_this_machine
from tensorkeep.tensors import LazyTensors

Checkpoint: TypeAlias = str | os.PathLike[str] | LazyTensors
"""A path or URL, or what is open already."""


class Opening:
    """Opens checkpoints and patches, encrypted or not; what is opened here is closed with the stack."""

    def __init__(self, stack: ExitStack, key: KeyLike | Sequence[KeyLike] | None = None) -> None:
        keys = Keys.given(key)
        self._options = OpenOptions(keys=None if keys is None else keys.optional())
        self._stack = stack

    def checkpoint(self, given: Checkpoint) -> LazyTensors:
        """Return open tensors."""
        return given if isinstance(given, LazyTensors) else self._opened(os.fspath(given))

    def patches(self, given: Iterable[Checkpoint]) -> list[Patch]:
        """Return open patches."""
        return [self._patch(patch) for patch in given]

    def _patch(self, given: Checkpoint) -> Patch:
        if isinstance(given, LazyTensors):
            return Patch.of(given, given.path)
        path = os.fspath(given)
        return Patch.of(self._opened(on_this_machine(path, self._stack)), path)

    def _opened(self, path: str) -> LazyTensors:
        opened = self._stack.enter_context(open_with(path, self._options))
        opened.require_names()
        return opened


def encryption_of(given: KeyLike | Encryption | None, *made_of: LazyTensors) -> Encryption | None:
    """Return how a result is encrypted: as the caller says, or else like the first of what it is made of."""
    found = (each.encryption for each in made_of)
    return Encryption.of(given) or next(filter(None, found), None)
