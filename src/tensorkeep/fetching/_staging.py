"""The directory in which files arrive, and what it says of itself: so that the next fetch goes on with this one.

    models/base/.model.tensorkeep-fetch/lock        held while a fetch lives
    models/base/.model.tensorkeep-fetch/journal     which bytes are there
    models/base/.model.tensorkeep-fetch/files/      the files, each of its final size from the start

A part is recorded after it was written. A killed process loses nothing that the system has taken, so that order is
enough; after a power cut the disk may lack it, so a record is believed in the same run of the system only, or each
part is on the disk before it is recorded.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

from tensorkeep.errors import AccessDeniedError, as_transport_error
from tensorkeep.fetching._journal import Begun, Came, Fetch, Progress, decode_journal, encode_line
from tensorkeep.fetching._spans import joined, without
from tensorkeep.fetching._version_id import VersionId
from tensorkeep.transport import (
    ByteRange,
    PartialFile,
    enter_working_directory,
    host_tag,
    leave_working_directory,
    publish,
)

_FAILED: Final = "could not write what is fetched"


def journal_of(path: str) -> str:
    """Return the journal in a staging directory."""
    return os.path.join(path, "journal")


class Staging:
    """A directory in which files arrive; locked until it is left."""

    def __init__(self, path: str, url: str, origin: str, stamps: Mapping[str, VersionId], *, durable: bool) -> None:
        self._path = path
        self.files = os.path.join(path, "files")
        self._journal_path = journal_of(path)
        self._fetch = Fetch(url, None if durable else host_tag(), origin=origin)
        self._stamps = stamps
        self._durable = durable
        self._turn = threading.Lock()
        with as_transport_error(_FAILED, path):
            self._lock = enter_working_directory(path, check=lambda: _check_owner(path))
            try:
                self._spans = self._found(durable=durable)
                self._journal: int | None = self._written_anew()
            except BaseException:
                self._lock.release()
                raise

    def _found(self, *, durable: bool) -> dict[str, list[ByteRange]]:
        """Return what is there of each file, and remove all else."""
        with suppress(FileExistsError):
            os.mkdir(self.files)
        known = self._read()
        spans = {name: known.spans[name] for name, stamp in self._stamps.items() if self._is_left(name, stamp, known)}
        self._remove_but(spans)
        if durable and known.fetch is not None and known.fetch.boot is not None:
            for name in spans:
                _sync(self.path_of(name), self._stamps[name].nbytes)
        return spans

    def _remove_but(self, kept: Collection[str]) -> None:
        for folder, _, names in os.walk(self.files):
            for name in names:
                place = os.path.join(folder, name)
                if os.path.relpath(place, self.files).replace(os.sep, "/") not in kept:
                    os.unlink(place)

    def _read(self) -> Progress:
        try:
            with open(self._journal_path, "rb") as file:
                known = decode_journal(file.read())
        except FileNotFoundError:
            return Progress()
        is_same = known.fetch is not None and known.fetch.origin == self._fetch.origin
        is_safe = known.fetch is not None and known.fetch.boot in {None, host_tag()}
        return known if is_same and is_safe else Progress()

    def _is_left(self, name: str, stamp: VersionId, known: Progress) -> bool:
        if not known.spans.get(name) or known.stamps[name] != stamp or not stamp.is_unique:
            return False
        try:
            status = os.lstat(self.path_of(name))
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_size == stamp.nbytes

    def _written_anew(self) -> int:
        """Write what is known now as a new journal, and open it for more."""
        path = self._journal_path
        with publish(path, durable=False) as sink:
            sink.write([encode_line(self._fetch)])
            for name, spans in self._spans.items():
                sink.write([encode_line(Begun(name, self._stamps[name]))])
                sink.write(encode_line(Came(name, span.start, span.stop)) for span in spans)
        return os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))

    def path_of(self, name: str) -> str:
        """Return where a file arrives."""
        return os.path.join(self.files, *name.split("/"))

    def spans_of(self, name: str) -> list[ByteRange]:
        """Return those bytes of a file that are there."""
        return self._spans.get(name, [])

    def make(self, name: str) -> PartialFile:
        """Open a file that is to arrive; if nothing of it is there yet, it is made."""
        with as_transport_error(_FAILED, self._path):
            os.makedirs(os.path.dirname(self.path_of(name)), exist_ok=True)
        file = PartialFile(self.path_of(name), self._stamps[name].nbytes)
        with self._turn:
            if name not in self._spans:
                self._spans[name] = []
                self._append(Begun(name, self._stamps[name]))
        return file

    def record(self, name: str, span: ByteRange, file: PartialFile) -> None:
        """Remember that bytes are there."""
        if not len(span):
            return
        if self._durable:
            file.sync()
        with self._turn:
            self._spans[name] = joined([*self._spans[name], span])
            self._append(Came(name, span.start, span.stop))
            self._lock.refresh()

    def _append(self, line: Begun | Came) -> None:
        if self._journal is not None:
            with as_transport_error(_FAILED, self._path):
                os.write(self._journal, encode_line(line))

    def take(self, name: str, path: str) -> None:
        """Let a file that is on the disk already be one of those that have arrived: another name of it, or a copy."""
        place = self.path_of(name)
        with as_transport_error(_FAILED, place):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with suppress(FileNotFoundError):
                os.unlink(place)
            _link_or_copy(path, place)

    def give(self, name: str, path: str) -> None:
        """Give a file that has arrived another name, or a copy."""
        _link_or_copy(self.path_of(name), path)

    def forget(self, name: str, spans: Iterable[ByteRange] | None) -> None:
        """Forget bytes that are not what they should be, so that they are asked for again."""
        with self._turn, as_transport_error(_FAILED, self._path):
            here = self._spans.pop(name, [])
            left = without(here, spans) if spans is not None else []
            if left:
                self._spans[name] = left
            else:
                os.unlink(self.path_of(name))
            self._close()
            self._journal = self._written_anew()

    def leave(self) -> None:
        """Go, and leave what has arrived for the next fetch; nothing where that is nothing."""
        with self._turn, suppress(OSError):
            self._close()
            self._remove_but({name for name, spans in self._spans.items() if spans})
        if any(self._spans.values()):
            self._lock.release()
        else:
            self.remove()

    def remove(self) -> None:
        """Go, and leave nothing."""
        with self._turn, suppress(OSError):
            self._close()
        shutil.rmtree(self.files, ignore_errors=True)
        with suppress(OSError):
            os.unlink(self._journal_path)
        leave_working_directory(self._path, self._lock)

    def _close(self) -> None:
        fd, self._journal = self._journal, None
        if fd is not None:
            os.close(fd)


def _check_owner(path: str) -> None:
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or (hasattr(os, "geteuid") and status.st_uid != os.geteuid()):
        raise AccessDeniedError("the staging directory belongs to another user, or is not a directory", path=path)


def _link_or_copy(path: str, place: str) -> None:
    try:
        os.link(path, place)
    except OSError:
        shutil.copy2(path, place)


def _sync(path: str, nbytes: int) -> None:
    file = PartialFile(path, nbytes)
    try:
        file.sync()
    finally:
        file.close()
