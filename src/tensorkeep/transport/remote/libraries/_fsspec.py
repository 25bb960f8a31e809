"""Objects of any file system that fsspec knows: the Hub (`hf://`), SSH, memory and many others."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tensorkeep.errors import (
    AccessDeniedError,
    MissingDependencyError,
    SourceMissingError,
    TensorkeepError,
    TransientError,
    TransportError,
)
from tensorkeep.texts import redacted, shown_url
from tensorkeep.transport.remote.objects import (
    Body,
    Chunks,
    ManyRefusedError,
    Opening,
    StoredObject,
    Version,
    bare_etag,
    changed,
    swapped,
)
from tensorkeep.transport.sources import ByteRange

_TAGS = ("ETag", "etag", "blob_id", "oid", "md5", "sha256")
"""Names that file systems give to what distinguishes versions of a file."""

_PIECE_NBYTES = 2**20
"""Bytes per request, which are held in memory before they are copied to their destination."""

_DENIED = frozenset({401, 403})
"""Statuses of answers that some libraries pass on as they came."""

_TIMES = ("last_commit", "LastModified", "mtime", "last_modified", "updated", "created")


def import_fsspec() -> Any:
    """Return the package."""
    try:
        import fsspec  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingDependencyError(
            "fsspec is needed for this scheme", found=str(error), hint="pip install 'tensorkeep[remote]'"
        ) from error
    return fsspec


class FsspecStore:
    """Files of a file system of fsspec."""

    def __init__(self, files: Any, scheme: str) -> None:
        self._files = files
        self._scheme = scheme

    def at(self, path: str) -> FsspecObject:
        """Return a file; see `RemoteStore.at`."""
        return FsspecObject(self._files, path, self._name_of(path))

    def names(self, path: str) -> list[str] | None:
        """Return the names in a directory."""
        try:
            found = self._files.ls(path, detail=False, refresh=True)
        except NotImplementedError:
            return None
        except Exception as error:  # noqa: BLE001 - file systems raise whatever their libraries do
            raise _translated(error, self._name_of(path)) from None
        return sorted(str(each).rstrip("/").rpartition("/")[2] for each in found)

    guards = False

    def objects(self, path: str) -> list[StoredObject]:
        """Return all files below a directory; see `WritableStore.objects`."""
        with _translating(self._name_of(path), doing="listed"):
            self._files.invalidate_cache()
            try:
                found = self._files.find(path, detail=True)
            except FileNotFoundError:
                return []
        root = f"{path.rstrip('/')}/"
        return [_listed(str(name), info, root) for name, info in found.items() if info.get("type") != "directory"]

    def copy(self, old: str, new: str) -> None:
        """Copy a file; see `WritableStore.copy`."""
        with _translating(self._name_of(old), doing="copied"):
            directory = new.rpartition("/")[0]
            if directory:
                self._files.makedirs(directory, exist_ok=True)
            self._files.cp_file(old, new)

    def put(self, path: str, body: Body, connections: int) -> None:  # noqa: ARG002 - the protocol's
        """Make or replace a file, by renaming one that is written beside it; see `RemoteStore.put`."""
        name = self._name_of(path)
        directory, slash, _ = path.rpartition("/")
        staged = f"{directory}{slash}.{secrets.token_hex(8)}.tensorkeep-staged"
        try:
            with _translating(name, doing="written"):
                if directory:
                    self._files.makedirs(directory, exist_ok=True)
                file = self._files.open(staged, "wb")
            with file:
                for piece in body.pieces():
                    with _translating(name, doing="written"):
                        file.write(piece)
            with _translating(name, doing="written"):
                self._rename(staged, path)
        except BaseException:
            with suppress(Exception):  # the original error is raised
                self._files.rm_file(staged)
            raise

    def _rename(self, old: str, new: str) -> None:
        """Rename a file; the generic `mv` of fsspec would take * and ? in names for patterns."""
        if type(self._files).mv is not import_fsspec().AbstractFileSystem.mv:
            self._files.mv(old, new)
            return
        self._files.cp_file(old, new)
        self._files.rm_file(old)

    def swap(self, path: str, data: bytes, before: Version | None) -> None:
        """Check, then make or replace a file: fsspec has no conditional writes; see `RemoteStore.swap`."""
        try:
            found = self.at(path).version()
        except SourceMissingError:
            found = None
        if (found is None) != (before is None) or (found and before and not found.is_same(before)):
            raise swapped(self._name_of(path))
        self.put(path, Body(len(data), lambda: [data]), 1)

    def remove(self, path: str) -> None:
        """Remove a file; see `RemoteStore.remove`."""
        with suppress(FileNotFoundError), _translating(self._name_of(path), doing="removed"):
            self._files.rm_file(path)

    def remove_all(self, paths: list[str]) -> None:
        """Remove files; see `WritableStore.remove_all`."""
        for path in paths:
            self.remove(path)

    def _name_of(self, path: str) -> str:
        return shown_url(f"{self._scheme}://{path.lstrip('/')}")


class FsspecObject:
    """A file in a file system of fsspec; see `RemoteObject`."""

    takes_many = False

    def __init__(self, files: Any, path: str, name: str) -> None:
        self._files = files
        self._path = path
        self.name = name

    def open(self, nbytes: int, *, max_whole_nbytes: int) -> Opening:  # noqa: ARG002 - the protocol's
        """Ask for the first bytes; see `RemoteObject.open`."""
        version = self.version()
        return Opening(version, self._read(0, min(nbytes, version.nbytes)))  # later reads check the version again

    def stream(self, span: ByteRange, version: Version) -> Chunks:
        """Ask for a range; see `RemoteObject.stream`. Nothing pins the version, so it is checked after each read."""
        return Chunks(self._pieces(span, version))

    def _pieces(self, span: ByteRange, version: Version) -> Iterator[bytes]:
        for start in range(span.start, span.stop, _PIECE_NBYTES):
            data = self._read(start, min(start + _PIECE_NBYTES, span.stop))
            found = self.version()
            if not found.is_same(version):
                raise changed(self.name, version, found)
            yield data
            if start + len(data) < min(start + _PIECE_NBYTES, span.stop):  # it ended early
                return

    def stream_many(self, spans: Sequence[ByteRange], version: Version) -> Chunks:  # noqa: ARG002 - the protocol's
        """Refuse; see `RemoteObject.stream_many`."""
        raise ManyRefusedError("this store reads only one range at a time", path=self.name)

    def _read(self, start: int, stop: int) -> bytes:
        try:
            data = self._files.cat_file(self._path, start=start, end=stop) if stop > start else b""
        except Exception as error:  # noqa: BLE001
            raise _translated(error, self.name) from None
        return bytes(data[: stop - start])

    def version(self) -> Version:
        """Return the current version of the file."""
        with _translating(self.name, doing="read"):
            self._files.invalidate_cache()
            info = self._files.info(self._path)
        if info.get("type") == "directory" or info.get("size") is None:
            raise SourceMissingError("there is no such file", path=self.name, found=str(info.get("type", "nothing")))
        return _version(info)


def _version(info: dict[str, Any]) -> Version:
    tag = next((str(info[key]) for key in _TAGS if info.get(key)), None)
    time = next((str(info[key]) for key in _TIMES if info.get(key)), None)
    if tag is None and info.get("ino") and time is not None:  # a file keeps its inode when it is written to
        tag = f"{info['ino']} {time}"
    return Version(int(info["size"]), tag, time)


def _listed(path: str, info: dict[str, Any], root: str) -> StoredObject:
    version = _version(info)
    name = path.removeprefix(root) if path.startswith(root) else path.removeprefix(root.lstrip("/"))
    return StoredObject(name, version.nbytes, version.etag and bare_etag(version.etag), _seconds(info))


def _seconds(info: dict[str, Any]) -> float | None:
    time: Any = next((info[key] for key in _TIMES if info.get(key)), None)
    seconds = time.timestamp() if hasattr(time, "timestamp") else time
    return seconds if isinstance(seconds, int | float) else None


@contextmanager
def _translating(name: str, *, doing: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - file systems raise whatever their libraries do
        raise _translated(error, name, doing) from None


def _translated(error: Exception, name: str, doing: str = "read") -> TransportError:
    if isinstance(error, TensorkeepError):
        return error if isinstance(error, TransportError) else TransportError(str(error), path=name)
    found = redacted(str(error) or type(error).__name__)
    if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
        return SourceMissingError("there is no such file", path=name, found=found)
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, PermissionError) or status in _DENIED:
        return AccessDeniedError(f"the store denied access: the file could not be {doing}", path=name, found=found)
    return TransientError(f"the file could not be {doing}", path=name, found=found)
