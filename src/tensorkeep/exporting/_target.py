"""Where an export goes: a local directory, which changes by one transaction, or a store, which gets finished files.

Formats set earlier bytes of a file once they know its sums, and stores take files from the first byte to the last. So
an export to a store is written and compared in a temporary directory, then sent, its last file last.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from typing import Final

from tensorkeep.errors import TensorkeepError
from tensorkeep.transport import (
    Body,
    ByteRange,
    ByteSink,
    RemotePath,
    Transaction,
    check_writable,
    exists,
    is_remote,
    join,
    list_names,
    open_source,
    split,
    transaction,
    without_secrets,
)

_PREFIX: Final = "tensorkeep-export-"

Counting = Callable[[], Callable[[int], None]]
"""Returns, for one file, what is called with its bytes that are done so far."""


class Target:
    """The path or URL of an export.

    Attributes:
        path: As it was given; a URL without its secrets.
        name: Its own name.
    """

    def __init__(self, path: str) -> None:
        check_writable(path)
        self.path = without_secrets(path)
        directory, self.name = split(path)
        self._store = RemotePath.of(directory) if is_remote(path) else None
        self._directory = directory

    @property
    def is_sent(self) -> bool:
        """Whether the files are sent to a store once they are written."""
        return self._store is not None

    def place_of(self, name: str) -> str:
        """Return the path or URL of a file of the export."""
        return join(self._directory, name)

    def is_taken(self, name: str) -> bool:
        """Say whether there is a file, or a link, by a name."""
        place = self.place_of(name)
        return exists(place) if self._store is not None else os.path.lexists(place)

    def names(self) -> frozenset[str]:
        """Return the names of all files there; none if the directory cannot be listed."""
        with suppress(TensorkeepError):
            return frozenset(list_names(self._directory) or ())
        return frozenset()

    @contextmanager
    def staged(self, *, durable: bool) -> Iterator[Staged]:
        """Write new files that appear only when they are published."""
        if self._store is None:
            with transaction(self._directory or os.curdir, self.name, durable=durable) as change:
                yield Staged(change, None)
            return
        with (
            tempfile.TemporaryDirectory(prefix=_PREFIX) as directory,
            transaction(directory, self.name, durable=False) as change,
        ):
            yield Staged(change, self._store)


class Staged:
    """New files that nobody sees until they are published."""

    def __init__(self, change: Transaction, store: RemotePath | None) -> None:
        self._change = change
        self._store = store

    def file(self, name: str, *, on_written: Callable[[int], None]) -> AbstractContextManager[ByteSink]:
        """Write a file."""
        return self._change.file(name, on_written=on_written)

    def path_of(self, name: str) -> str:
        """Return the local path of a written file."""
        return self._change.path_of(name)

    def publish(self, names: Sequence[str], replaced: Sequence[str], counting: Counting) -> None:
        """Let the files appear, the last one at last, and remove those that they replace."""
        if self._store is None:
            self._change.commit(last=names[-1], remove=replaced)
            return
        for name in names:
            self._send(name, self._store.joined(name), counting())
        for name in replaced:
            self._store.joined(name).remove()

    def _send(self, name: str, to: RemotePath, on_sent: Callable[[int], None]) -> None:
        with closing(open_source(self.path_of(name), backend="pread")) as source:
            whole = ByteRange(0, source.nbytes)
            to.put(Body(len(whole), lambda: source.pieces(whole)), on_written=on_sent)
