"""Where the steps of a store are, as a protocol; what it promises.

1. A step appears by the commit of a save to `path_of` it, which `tensorkeep.checkpoint` makes complete or not at all.
2. `remove` makes a step disappear at once, and never one that is being saved or was saved since it was looked at.
3. `sweep` removes what dead processes left, and nothing that a living one may still need.

A new place is one more class and a line in `place_of`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from typing import Protocol

from tensorkeep.errors import SourceMissingError, TensorkeepError
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.safetensors import SavedDirectory
from tensorkeep.store.places._bucket import BucketPlace
from tensorkeep.store.places._directory import DirectoryPlace
from tensorkeep.store.places._step import Examined, Identity, Step, StepFiles
from tensorkeep.transport import is_directory, is_in_store, is_remote, local_path


class Place(Protocol):
    """The place of all steps of one store.

    Attributes:
        reads_cost: Whether reading a step twice takes twice as long.
        can_link: Whether files can have several names, so that steps may share some.
    """

    @property
    def reads_cost(self) -> bool: ...
    @property
    def can_link(self) -> bool: ...

    @property
    def root(self) -> str:
        """Its absolute path."""

    @property
    def key(self) -> str:
        """Text that is equal for equal places."""

    def path_of(self, step: int) -> str:
        """Return where a step is, or would be."""

    def holds(self, path: str) -> bool:
        """Say whether anything is where a step was."""

    def require(self) -> None:
        """Refuse a place that does not exist."""

    def prepare(self, *, durable: bool) -> None:
        """Get ready for saves."""

    def was_taken(self, path: str, error: SourceMissingError) -> bool:
        """Say whether a save failed only because another process swept the empty place of its step."""

    def look(self) -> dict[int, Identity]:
        """Return all steps, ascending, whole or not; none if the place does not exist yet."""

    def examine(self, step: int, identity: Identity) -> Examined | None:
        """Look into a step without reading tensors; None if it is gone."""

    def appearing(self, step: int, *, durable: bool) -> AbstractContextManager[str]:
        """Return a new directory that becomes the step if the block ends without an error; only if `can_link`."""

    def open(self, step: int, options: OpenOptions) -> SavedDirectory:
        """Open a step, and check its index and all headers."""

    def measure(self) -> dict[int, StepFiles]:
        """Return the sizes of all steps, as of the last look or later."""

    def read_note(self, name: str, max_nbytes: int) -> bytes | None:
        """Return a small file beside the steps, or its beginning; None if there is none."""

    def write_note(self, name: str, text: bytes, *, durable: bool) -> None:
        """Write a small file beside the steps, in place of an older one."""

    def remove(self, step: int, seen: Step | None = None) -> None:
        """Remove a step, if it still is the one that was seen."""

    def sweep(self, steps: Iterable[Step]) -> bool:
        """Remove what dead processes left at and beside these steps, which are all; say whether there was any."""


def place_of(root: str | os.PathLike[str]) -> Place:
    """Return the place that a path names; nothing need be there yet."""
    path = os.fspath(root)
    if is_in_store(path):
        return BucketPlace(path)
    return DirectoryPlace(local_path(path))


def is_store(path: str) -> bool:
    """Say whether a path holds steps."""
    if not is_remote(path):
        return os.path.isdir(path) and bool(place_of(path).look())
    with suppress(TensorkeepError):  # such as a server that lists nothing
        return is_directory(path) and bool(place_of(path).look())
    return False
