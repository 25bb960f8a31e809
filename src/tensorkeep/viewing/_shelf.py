"""What is shown: one or two places, and the checkpoints that are open in them."""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from functools import cached_property
from itertools import count
from typing import Any, Final

import msgspec

from tensorkeep.checkpoint import open_with
from tensorkeep.encryption import Keys
from tensorkeep.errors import SourceMissingError
from tensorkeep.kinds import OpenOptions
from tensorkeep.store import CheckpointStore, is_store
from tensorkeep.tensors import LazyTensor
from tensorkeep.transport import without_secrets
from tensorkeep.transport.system import give_back_freed_memory
from tensorkeep.viewing._query import QueryError

_MAX_OPEN: Final = 8
"""Checkpoints that stay open; files of others are closed when the last work on them ends."""

_match_name = re.compile(r"(?P<side>[ab])(?::(?P<step>[0-9]{1,15}))?", re.ASCII).fullmatch
_numbers = count()


class Options(msgspec.Struct, frozen=True):
    """How what was given is opened; see `tensorkeep.open`."""

    variant: str | None = None
    engine: str | None = None
    keys: Keys | None = None


class Shown:
    """An open checkpoint.

    Attributes:
        of: How the page names it: `a`, `b`, or `a:500` for a step.
        path: Where it is.
        options: How it was opened.
        opened: The open files.
        number: Differs for every opening in this process.
    """

    def __init__(self, of: str, path: str, options: Options) -> None:
        self.of = of
        self.path = path
        self.options = options
        self.number = next(_numbers)
        # Reads rather than mappings: a file that another program cuts short is an error, not the end of the process.
        opening = OpenOptions(backend="pread", dangerous="record", **msgspec.structs.asdict(options))
        self.opened = open_with(path, opening)
        give_back_freed_memory()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all tensors; the page knows them by their places here."""
        return tuple(self.opened)

    @cached_property
    def places(self) -> dict[str, int]:
        """Name to place."""
        return {name: place for place, name in enumerate(self.names)}

    @cached_property
    def tree(self) -> Any:
        """The nested value that was saved, with lazy tensors."""
        return self.opened.outline

    def tensor(self, place: int) -> LazyTensor:
        """Return a tensor by its place."""
        if not 0 <= place < len(self.names):
            raise QueryError("no tensor has this number", found=str(place))
        return self.opened[self.names[place]]


class Side:
    """A place that was given: a checkpoint, or a store of steps."""

    def __init__(self, of: str, path: str | os.PathLike[str], options: Options) -> None:
        self.of = of
        self.path = os.fspath(path)
        self.options = options
        self.shown_path = str(without_secrets(self.path))
        self.store = CheckpointStore(self.path) if is_store(self.path) else None

    @property
    def first(self) -> str | None:
        """The checkpoint to show first: of a store, the last whole step."""
        if self.store is None:
            return self.of
        latest = self.store.latest()
        return None if latest is None else f"{self.of}:{latest}"

    @property
    def required_store(self) -> CheckpointStore:
        """The store, of a place that is one."""
        if self.store is None:
            raise SourceMissingError("it is not a store of steps", path=self.shown_path)
        return self.store

    def path_of(self, step: int | None) -> str:
        """Return where a checkpoint is."""
        if self.store is None:
            if step is not None:
                raise QueryError("it has no steps", path=self.shown_path)
            return self.path
        if step is None:
            raise QueryError("it is a store of steps", expected=f"one of them, such as {self.of}:500")
        return self.store.path_of(step)


class Shelf:
    """The places that were given, and nothing else. May be used from any thread."""

    def __init__(self, path: str | os.PathLike[str], other: str | os.PathLike[str] | None, options: Options) -> None:
        given = {"a": path} if other is None else {"a": path, "b": other}
        self.sides = {of: Side(of, each, options) for of, each in given.items()}
        self._open: OrderedDict[str, Shown] = OrderedDict()
        self._lock = threading.Lock()
        for side in self.sides.values():
            first = side.first
            if first is not None:
                self.checkpoint(first)

    def side(self, of: str) -> Side:
        """Return a place by its name."""
        if of not in self.sides:
            raise QueryError("no checkpoint has this name", expected=" or ".join(self.sides), found=repr(of))
        return self.sides[of]

    def checkpoint(self, of: str) -> Shown:
        """Return an open checkpoint by its name."""
        match = _match_name(of)
        if match is None:
            raise QueryError("no checkpoint has this name", expected=" or ".join(self.sides), found=repr(of))
        side = self.side(match["side"])
        with self._lock:
            if of in self._open:
                self._open.move_to_end(of)
                return self._open[of]
        shown = Shown(of, side.path_of(None if match["step"] is None else int(match["step"])), side.options)
        with self._lock:
            shown = self._open.setdefault(of, shown)
            while len(self._open) > _MAX_OPEN:
                self._open.popitem(last=False)
        return shown

    def close(self) -> None:
        """Let go of what is open; files close when the last work on them ends."""
        with self._lock:
            self._open.clear()
