"""Where a feed is: a directory, or a bucket. Each name beside the index is a file, or a checkpoint of several.

Only the index is ever replaced, and what it does not name any more goes after that. A lock keeps a second publisher
out of a directory. In a bucket, a conditional write of the index refuses one of two, and names are unique, so that
neither touches the other's files.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final, Protocol

from tensorkeep.checkpoint import remove_objects
from tensorkeep.errors import BusyError, SourceMissingError, as_transport_error
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.patches.feed._index import INDEX_NAME
from tensorkeep.transport import (
    ByteRange,
    DirectoryLock,
    RemotePath,
    Version,
    is_in_store,
    publish,
    refuse_url,
    take_lock,
)

_LOCK: Final = ".feed.lock"


class FeedPlace(Protocol):
    """The place of one feed."""

    @property
    def root(self) -> str:
        """Its path or URL."""

    def publishing(self) -> AbstractContextManager[str]:
        """Let a block publish a step; give a token for its names, so that two publishers use no name twice."""

    def show_life(self) -> None:
        """Show other publishers that this one is alive."""

    def path(self, name: str) -> str:
        """Return where something beside the index is."""

    def read_index(self) -> bytes | None:
        """Read the index; None without one."""

    def replace_index(self, text: bytes) -> None:
        """Replace the index that was last read or written, and no other."""

    def holds(self, name: str) -> bool:
        """Say whether there is anything of that name."""

    def nbytes(self, name: str) -> int:
        """Return the size of a file."""

    def remove(self, names: Collection[str]) -> None:
        """Remove what can be removed: whatever stays is named by nobody."""


class DirectoryFeed:
    """Implements `FeedPlace`."""

    def __init__(self, directory: str, *, durable: bool) -> None:
        self.root = os.path.abspath(directory)
        self._durable = durable

    @contextmanager
    def publishing(self) -> Iterator[str]:
        """Make the directory, and keep other publishers out of it."""
        with as_transport_error("could not make the directory", self.root):
            os.makedirs(self.root, exist_ok=True)
            lock = self._lock = self._locked()
        try:
            yield ""
        finally:
            lock.release()

    def _locked(self) -> DirectoryLock:
        try:
            return take_lock(self.path(_LOCK))
        except BusyError as error:
            message, hint = "another process is publishing in this feed", "Let one process publish a run"
            raise error.with_fields(message=message, path=self.root, hint=hint) from None

    def show_life(self) -> None:
        """Refresh the lock, which counts where the file system has none of its own."""
        self._lock.refresh()

    def path(self, name: str) -> str:
        """Return where something beside the index is."""
        return os.path.join(self.root, name)

    def read_index(self) -> bytes | None:
        """Read the index; None without one."""
        path = self.path(INDEX_NAME)
        try:
            with as_transport_error("could not read the index", path), open(path, "rb") as file:
                return file.read()
        except SourceMissingError:
            return None

    def replace_index(self, text: bytes) -> None:
        """Replace the index by a rename."""
        with publish(self.path(INDEX_NAME), durable=self._durable) as sink:
            sink.write([text])

    def holds(self, name: str) -> bool:
        """Say whether there is anything of that name."""
        return os.path.lexists(self.path(name))

    def nbytes(self, name: str) -> int:
        """Return the size of a file."""
        return os.path.getsize(self.path(name))

    def remove(self, names: Collection[str]) -> None:
        """Remove files and directories."""
        for path in map(self.path, names):
            if os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    os.unlink(path)


class BucketFeed:
    """Implements `FeedPlace`."""

    def __init__(self, url: str) -> None:
        self._root = RemotePath.of(url).joined("x").split()[0]  # without a slash at the end
        self._root.check_writable()
        self._version: Version | None = None

    @property
    def root(self) -> str:
        """The URL, without secrets."""
        return self._root

    @contextmanager
    def publishing(self) -> Iterator[str]:
        """Give a random token; a conditional write of the index refuses a second publisher."""
        yield secrets.token_hex(4)

    def show_life(self) -> None:
        """Do nothing: nobody waits."""

    def path(self, name: str) -> RemotePath:
        """Return the URL of something beside the index."""
        return self._root.joined(name)

    def read_index(self) -> bytes | None:
        """Read the index, and remember its version."""
        text, self._version = self._read()
        return text

    def _read(self) -> tuple[bytes | None, Version | None]:
        try:
            source = self.path(INDEX_NAME).open()
        except SourceMissingError:
            return None, None
        return bytes(source.read(ByteRange(0, min(source.nbytes, MAX_INDEX_NBYTES)))), source.version

    def replace_index(self, text: bytes) -> None:
        """Replace the index by a conditional write."""
        self.path(INDEX_NAME).swap(text, self._version)
        found, version = self._read()
        if found == text:  # else another publisher came: the next write is refused
            self._version = version

    def holds(self, name: str) -> bool:  # noqa: ARG002 - the protocol's
        """Return False: names are random, so nobody else's are the same."""
        return False

    def nbytes(self, name: str) -> int:
        """Return the size of an object."""
        return self.path(name).version().nbytes

    def remove(self, names: Collection[str]) -> None:
        """Remove objects of these names, and below them."""
        if names:
            objects = [each.name for each in self._root.objects()]
            remove_objects(self._root, [name for name in objects if name.partition("/")[0] in names])


def feed_place(directory: str, *, durable: bool) -> FeedPlace:
    """Return the place that a path or URL names."""
    if is_in_store(directory):
        return BucketFeed(directory)
    refuse_url(directory, hint="Publish to a directory or a bucket, and serve or synchronize that")
    return DirectoryFeed(directory, durable=durable)
