"""Objects of S3, Google Cloud Storage and Azure, through obstore (the Rust crate `object_store`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from tensorkeep.buffers import Buffer
from tensorkeep.errors import (
    AccessDeniedError,
    MissingDependencyError,
    SourceChangedError,
    SourceMissingError,
    TransientError,
    TransportError,
)
from tensorkeep.parallel import LibraryThreads
from tensorkeep.texts import redacted, shown_url
from tensorkeep.transport.remote.libraries._push_stream import send_through
from tensorkeep.transport.remote.objects import (
    Body,
    Chunks,
    ManyRefusedError,
    Opening,
    StoredObject,
    Version,
    bare_etag,
    changed,
    join_url,
    read_only,
    swapped,
    whole_file_too_large,
)
from tensorkeep.transport.sources import ByteRange

_threads: Final = LibraryThreads()


def import_obstore() -> Any:
    """Return the package."""
    try:
        import obstore
    except ImportError as error:
        raise MissingDependencyError(
            "obstore is needed for s3, gs and az",
            found=str(error),
            hint="pip install 'tensorkeep[remote]'",
        ) from error
    if _threads.are_lost:
        raise TransportError(
            "obstore does not work in a process that was forked after its first use",
            hint='Start processes by "spawn" or "forkserver", or fork before the first read',
        )
    _threads.start()
    return obstore


class ObstoreStore:
    """Objects of one server, bucket or container.

    Attributes:
        store: The store of obstore.
    """

    def __init__(self, store: Any, url: str, *, lists: bool = True) -> None:
        self.store = store
        self._url = url
        self._lists = lists

    def at(self, path: str) -> ObstoreObject:
        """Return an object; see `RemoteStore.at`."""
        return ObstoreObject(self, path, shown_url(join_url(self._url, path) if path else self._url))

    def names(self, path: str) -> list[str] | None:
        """Return the names in a directory."""
        if not self._lists:
            return None
        name = shown_url(join_url(self._url, path))
        obstore = import_obstore()
        with _translating(name):
            found = obstore.list_with_delimiter(self.store, path or None)
        paths = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        return sorted(each.rstrip("/").rpartition("/")[2] for each in paths)

    @property
    def guards(self) -> bool:
        """Whether writes can be conditional; to a directory they cannot."""
        return type(self.store).__name__ != "LocalStore"

    def objects(self, path: str) -> list[StoredObject]:
        """Return all objects below a directory; see `WritableStore.objects`."""
        obstore = self._to_write(path)
        found: list[StoredObject] = []
        with _translating(shown_url(join_url(self._url, path))):
            for metas in obstore.list(self.store, path or None, chunk_size=_LISTED_AT_ONCE):
                found += (_listed(meta, path) for meta in metas)
        return found

    def copy(self, old: str, new: str) -> None:
        """Copy an object; see `WritableStore.copy`."""
        obstore = self._to_write(new)
        with _translating(self.at(old).name, doing="copied"):
            obstore.copy(self.store, old, new)

    def put(self, path: str, body: Body, connections: int) -> None:
        """Make or replace an object, in parts that are sent in parallel; see `RemoteStore.put`."""
        obstore = self._to_write(path)
        part_nbytes = max(_PART_NBYTES, -(-body.nbytes // _MAX_PARTS))
        n_parts = max(1, min(connections, -(-body.nbytes // part_nbytes)))

        def send(pieces: Iterator[Buffer]) -> None:
            with _translating(self.at(path).name, doing="written"):
                if body.nbytes <= _PART_NBYTES:  # one request in place of three
                    obstore.put(self.store, path, b"".join(map(bytes, pieces)), use_multipart=False)
                    return
                obstore.put(
                    self.store, path, pieces, chunk_size=part_nbytes, max_concurrency=n_parts, use_multipart=True
                )

        send_through(send, body.pieces())

    def swap(self, path: str, data: bytes, before: Version | None) -> None:
        """Make or replace a small object, unless it changed since it was seen; see `RemoteStore.swap`."""
        obstore = self._to_write(path)
        name = self.at(path).name
        mode: Any = "create" if before is None else _naming(before)
        try:
            obstore.put(self.store, path, data, mode=mode, use_multipart=False)
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
            raise swapped(name) from None
        except (NotImplementedError, obstore.exceptions.NotSupportedError):
            self._swap_unguarded(path, data, before)
        except Exception as error:  # noqa: BLE001
            raise _translated(error, name, doing="written") from None

    def _swap_unguarded(self, path: str, data: bytes, before: Version | None) -> None:
        """Check, then replace: the best that a store without conditional writes allows."""
        obstore = import_obstore()
        name = self.at(path).name
        with _translating(name, doing="written"):
            try:
                found = _version(obstore.head(self.store, path))
            except FileNotFoundError:
                found = None
            if (found is None) != (before is None) or (found and before and not found.is_same(before)):
                raise swapped(name)
            obstore.put(self.store, path, data, use_multipart=False)

    def remove(self, path: str) -> None:
        """Remove an object; see `RemoteStore.remove`."""
        obstore = self._to_write(path)
        with suppress(FileNotFoundError), _translating(self.at(path).name, doing="removed"):
            obstore.delete(self.store, path)

    def remove_all(self, paths: list[str]) -> None:
        """Remove objects; see `WritableStore.remove_all`."""
        obstore = self._to_write(paths[0])
        with _translating(self.at(paths[0]).name, doing="removed"):
            obstore.delete(self.store, paths)

    def _to_write(self, path: str) -> Any:
        if not self._lists:
            raise read_only(self.at(path).name, "web servers")
        return import_obstore()


class ObstoreObject:
    """An object in a store of obstore; see `RemoteObject`."""

    takes_many = False

    def __init__(self, store: ObstoreStore, path: str, name: str) -> None:
        self._store = store
        self._path = path
        self.name = name

    def open(self, nbytes: int, *, max_whole_nbytes: int) -> Opening:
        """Ask for the first bytes; see `RemoteObject.open`."""
        obstore = import_obstore()
        try:
            result = obstore.get(self._store.store, self._path, options={"range": (0, nbytes)})
            return Opening(_version(result.meta), result.bytes())
        except Exception as error:  # noqa: BLE001
            if not _is_about_ranges(error):
                raise _translated(error, self.name) from None
        return self._open_whole(max_whole_nbytes)

    def _open_whole(self, max_nbytes: int) -> Opening:
        obstore = import_obstore()
        with _translating(self.name):
            result = obstore.get(self._store.store, self._path)
            version = _version(result.meta)
            data = result.bytes() if version.nbytes <= max_nbytes else b""
        if version.nbytes > max_nbytes:
            raise whole_file_too_large(self.name, version.nbytes, max_nbytes)
        if len(data) != version.nbytes:
            raise TransientError("the answer ended early", path=self.name)
        return Opening(version, data)

    def stream(self, span: ByteRange, version: Version) -> Chunks:
        """Ask for a range; see `RemoteObject.stream`."""
        options: dict[str, Any] = {"range": (span.start, span.stop)}
        if version.is_pinned:
            options |= {"version": version.number} if version.number is not None else {"if_match": version.etag}
        obstore = import_obstore()
        with _translating(self.name):
            result = obstore.get(self._store.store, self._path, options=options)
            found, given = _version(result.meta), tuple(result.range)
            chunks = iter(result.stream(min_chunk_size=_CHUNK_NBYTES))
        if not found.is_same(version):
            raise changed(self.name, version, found)
        if given != (span.start, span.stop):
            raise TransportError(
                "the server sent another range than requested",
                path=self.name,
                expected=f"[{span.start:,}, {span.stop:,})",
                found=f"[{given[0]:,}, {given[1]:,})",
            )
        return Chunks(self._translated(chunks))

    def stream_many(self, spans: Sequence[ByteRange], version: Version) -> Chunks:  # noqa: ARG002 - the protocol's
        """Refuse; see `RemoteObject.stream_many`."""
        raise ManyRefusedError("this store reads only one range at a time", path=self.name)

    def _translated(self, chunks: Iterator[Buffer]) -> Iterator[Buffer]:
        with _translating(self.name):
            yield from chunks


_CHUNK_NBYTES: Final = 2**18
"""Bytes handed over at a time: enough to keep Python's work per byte small."""


_MACHINE_CREDENTIALS: Final = ("//169.254.169.254/", "//169.254.170.2/", "//metadata.google.internal/", "//metadata/")
"""What gives credentials to machines in a cloud, and is asked where the environment has none."""

_LISTED_AT_ONCE: Final = 1000

_PART_NBYTES: Final = 2**23
_MAX_PARTS: Final = 9_000
"""S3 accepts 10,000 parts of one object."""


def _version(meta: Any) -> Version:
    return Version(meta["size"], meta.get("e_tag"), meta.get("last_modified"), meta.get("version"))


def _listed(meta: Any, path: str) -> StoredObject:
    etag, modified = meta.get("e_tag"), meta.get("last_modified")
    name = meta["path"].removeprefix(f"{path}/")
    return StoredObject(name, meta["size"], etag and bare_etag(etag), modified and modified.timestamp())


def _naming(version: Version) -> dict[str, str]:
    known = {"e_tag": version.etag, "version": version.number}
    return {key: value for key, value in known.items() if value is not None}


def _is_about_ranges(error: Exception) -> bool:
    text = str(error)
    is_empty = "416 " in text or "only 0 bytes long" in text  # not even a first byte exists
    return is_empty or (type(error).__name__ == "NotSupportedError" and "ange" in text)


_find_code = re.compile(r"<Code>(\w{1,100})</Code>").search


@contextmanager
def _translating(name: str, doing: str = "read") -> Iterator[None]:
    try:
        yield
    except TransportError:
        raise
    except Exception as error:  # noqa: BLE001 - obstore's own errors, or the system's
        raise _translated(error, name, doing) from None


def _translated(error: Exception, name: str, doing: str = "read") -> TransportError:
    """Return our error for one of obstore's, on one line and without secrets."""
    kind = type(error).__name__
    text = redacted(str(error)).strip()
    code = _find_code(text)
    found = code[1] if code else text.splitlines()[0] if text else kind
    if isinstance(error, FileNotFoundError) or found == "NoSuchBucket":
        what = "bucket" if doing == "written" or found == "NoSuchBucket" else "file"
        return SourceMissingError(f"there is no such {what}", path=name, found=found)
    if kind == "UnauthenticatedError":
        return AccessDeniedError(
            "the server requires credentials (401)",
            path=name,
            found=found,
            hint="Set credentials in the environment, or pass them to tensorkeep.remote(url, …)",
        )
    if kind == "PermissionDeniedError":
        return AccessDeniedError(
            f"the server denied access (403): the file could not be {doing}", path=name, found=found
        )
    if kind == "PreconditionError":
        return SourceChangedError(
            "the file was replaced by another while it was open", path=name, hint="Open it again"
        )
    error_class = TransientError if kind == "GenericError" else TransportError
    if any(host in text for host in _MACHINE_CREDENTIALS):
        return error_class(
            "the environment has no credentials for the store, and this machine did not give any",
            path=name,
            found=found,
            hint="Set them in the environment, or pass them to tensorkeep.remote(url, …); skip_signature=True if the"
            " bucket is public",
        )
    return error_class(f"the file could not be {doing}", path=name, found=found)
