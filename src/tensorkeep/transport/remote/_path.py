"""A URL that knows its store, accepted wherever a path is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.errors import AccessDeniedError, SourceChangedError, SourceMissingError, UnsupportedError
from tensorkeep.limits import WRITE_NBYTES
from tensorkeep.on_demand import imported
from tensorkeep.texts import shown_url
from tensorkeep.transport.remote.objects import (
    Body,
    ListingStore,
    Opening,
    RemoteOptions,
    RemoteStore,
    StoredObject,
    Version,
    WritableStore,
    is_url,
    is_well_formed,
    join_url,
    local_path,
    read_only,
    scheme_of,
    split_url,
)
from tensorkeep.transport.remote.reading import RemoteSource, cached, fingerprint_of
from tensorkeep.transport.sources import ByteRange

_STORES: Final = "tensorkeep.transport.remote._stores"
"""Imported by name: a program that reads local files needs no store."""

_READ_OPTIONS = frozenset(RemoteOptions.__struct_fields__)


class _Family:
    """State shared by paths derived from each other: their stores, and cached answers."""

    def __init__(self) -> None:
        self.stores: dict[bool, RemoteStore] = {}  # so that all use the same connections
        self.is_cached = False
        self.openings: dict[str, Opening | SourceMissingError | AccessDeniedError] = {}
        self.names: dict[str, list[str] | SourceMissingError] = {}

    def forget(self) -> None:
        """Stop caching, and drop what was cached."""
        self.is_cached = False
        self.openings.clear()
        self.names.clear()


class RemotePath(str):
    """A URL with its options, made by `remote`, or from a plain URL when it is opened.

    As a string it is the URL without secrets, so that it can be shown.
    """

    __slots__ = ("_family", "_options", "_read_options", "_store", "_url")

    _url: str
    _options: dict[str, Any]
    _store: Any
    _read_options: RemoteOptions
    _family: _Family

    @classmethod
    def of(cls, url: str) -> RemotePath:
        """Return a URL as a `RemotePath`; one that is a `RemotePath` already is returned as is."""
        return url if isinstance(url, RemotePath) else cls._checked(url, {}, RemoteOptions())

    @classmethod
    def _checked(cls, url: str, options: dict[str, Any], read_options: RemoteOptions) -> RemotePath:
        if not is_well_formed(url):
            raise UnsupportedError(
                "not a complete URL",
                path=shown_url(url),
                expected="one such as https://example.org/model/ or s3://bucket/model/",
            )
        return cls._made(url, options, None, read_options)

    @classmethod
    def _made(cls, url: str, options: dict[str, Any], store: Any, read_options: RemoteOptions) -> RemotePath:
        path = str.__new__(cls, shown_url(url))
        path._url, path._options, path._store, path._read_options = url, options, store, read_options
        path._family = _Family()
        return path

    def _of_family(self, url: str) -> RemotePath:
        """Return the path of another URL in the same store, with the same cache."""
        path = self._made(url, self._options, self._store, self._read_options)
        path._family = self._family
        return path

    def __reduce__(self) -> tuple[Any, ...]:
        return RemotePath._made, (self._url, self._options, self._store, self._read_options)

    @contextmanager
    def listing_cache(self) -> Iterator[RemotePath]:
        """Yield a copy that caches answers in the block, for itself and all paths derived from it."""
        path = self._made(self._url, self._options, self._store, self._read_options)
        path._family.is_cached = True
        try:
            yield path
        finally:
            path._family.forget()

    @property
    def scheme(self) -> str:
        """The scheme of the URL, such as `s3`."""
        return scheme_of(self._url)

    @property
    def is_shown_whole(self) -> bool:
        """Whether only a query or a fragment is missing from the text, and no user or password."""
        return self._url.startswith(str(self))

    @property
    def options(self) -> dict[str, Any]:
        """Options of the store; they may hold secrets."""
        return dict(self._options)

    @property
    def connections(self) -> int:
        """Parallel requests of one read."""
        return self._read_options.connections

    @property
    def fingerprint(self) -> str:
        """A digest of everything that decides what a server sends: 64 hexadecimal digits."""
        return fingerprint_of(self._url, self._options, self._store)

    def read_by(self, **options: Any) -> RemotePath:
        """Return the same path with other read options."""
        read_options = msgspec.structs.replace(self._read_options, **options)
        return self._made(self._url, self._options, self._store, read_options)

    def joined(self, name: str) -> RemotePath:
        """Return the path of something below this one."""
        return self._of_family(join_url(self._url, name))

    def split(self) -> tuple[RemotePath, str]:  # type: ignore[override]
        """Return the directory of this path, and its name there."""
        directory, name = split_url(self._url)
        return self._of_family(directory), name

    def open(self) -> RemoteSource:
        """Open the object."""
        store, path = self._place()
        known = self._family.openings.get(self._url)
        if isinstance(known, SourceMissingError | AccessDeniedError):
            raise known.with_fields()
        try:
            place, read_options = cached(store.at(path), self._read_options, self._url, self._options)
            source = RemoteSource(place, read_options, known)
        except (SourceMissingError, AccessDeniedError) as error:
            if self._family.is_cached:
                self._family.openings[self._url] = error.with_fields()
            raise
        if self._family.is_cached:
            self._family.openings[self._url] = source.opening
        return source

    def names(self) -> list[str] | None:
        """Return the names in this directory; None if the store cannot list it."""
        store, path = self._place()
        known = self._family.names.get(self._url)
        if isinstance(known, SourceMissingError):
            raise known.with_fields()
        if known is not None:
            return known
        try:
            names = store.names(path)
        except SourceMissingError as error:
            if self._family.is_cached:
                self._family.names[self._url] = error.with_fields()
            raise
        if self._family.is_cached and names is not None:  # None costs no request
            self._family.names[self._url] = names
        return names

    def version(self) -> Version:
        """Return the version of the object, from the cache if it is there."""
        source = self.open()
        source.close()
        return source.version

    def forget(self) -> None:
        """Drop what was cached, and cache the next answers."""
        is_cached = self._family.is_cached
        self._family.forget()
        self._family.is_cached = is_cached

    def check_writable(self) -> None:
        """Refuse a store that cannot be written to, as far as is known without a request."""
        self._writable()

    def _writable(self) -> tuple[WritableStore, str]:
        store, path = self._place(writes=True)
        if not isinstance(store, WritableStore):
            raise read_only(self, "single files of the Hub" if self.scheme == "hf" else "web servers")
        return store, path

    def put(self, body: Body, *, on_written: Callable[[int], None] | None = None) -> None:
        """Create or replace the object; others see it only once it is complete."""
        store, path = self._writable()
        store.put(path, body if on_written is None else _counted(body, on_written), self._read_options.connections)

    def swap(self, data: bytes, before: Version | None) -> None:
        """Create or replace a small object, unless someone else changed it since `before`."""
        store, path = self._writable()

        def attempt() -> None:
            try:
                store.swap(path, data, before)
            except SourceChangedError:
                if not self._holds(data):  # else it was done, and only the answer was lost
                    raise

        self._read_options.patience().try_again(attempt)

    def _holds(self, data: bytes) -> bool:
        self.forget()
        try:
            source = self.open()
        except SourceMissingError:
            return False
        return source.nbytes == len(data) and bytes(source.read(ByteRange(0, len(data)))) == data

    def guards_swaps(self, known: bytes | None) -> bool:
        """Whether `swap` is one conditional write, so that one of two at once is refused.

        Given the content of this object, it asks the server, since some that speak S3 ignore the condition.
        """
        store, path = self._writable()
        if not store.guards or known is None:
            return store.guards
        try:
            self._read_options.patience().try_again(lambda: store.swap(path, known, None))
        except SourceChangedError:
            return True
        return False

    def objects(self) -> list[StoredObject]:
        """Return all objects below this directory, at any depth, if any."""
        store, path = self._writable()
        return self._read_options.patience().try_again(lambda: store.objects(path))

    def sizes(self) -> dict[str, int] | None:
        """Return the size of each object below this directory, by its path there; None if the store lists none."""
        store, path = self._place()
        if not isinstance(store, ListingStore) or self.names() is None:
            return None
        found = self._read_options.patience().try_again(lambda: store.objects(path))
        return {each.name: each.nbytes for each in found}

    def copy_to(self, new: RemotePath) -> None:
        """Copy the object to another place in the same store, which sends no data."""
        store, path = self._writable()
        store.copy(path, new._writable()[1])

    def remove(self) -> None:
        """Remove the object if it exists."""
        store, path = self._writable()
        store.remove(path)

    def remove_all(self, names: Iterable[str]) -> None:
        """Remove objects in this directory, in as few requests as the store allows."""
        store, _ = self._writable()
        store.remove_all([self.joined(name)._writable()[1] for name in names])

    def _place(self, *, writes: bool = False) -> tuple[RemoteStore, str]:
        """Return the store and the path in it."""
        stores: ModuleType = imported(_STORES)
        if self._store is not None:
            store, path = stores.store_and_path_in(self._store, self._url)
        else:
            store, path = stores.store_and_path(self._url, self._options, self._read_options.timeout_s, writes=writes)
        self._family.stores[writes] = store
        return store, path


def _counted(body: Body, on_written: Callable[[int], None]) -> Body:
    def pieces() -> Iterator[Buffer]:
        n_written = 0
        for buffer in body.pieces():
            view = memoryview(buffer).cast("B")
            for begin in range(0, view.nbytes, WRITE_NBYTES):
                piece = view[begin : begin + WRITE_NBYTES]
                yield piece
                n_written += piece.nbytes
                on_written(n_written)

    return Body(body.nbytes, pieces)


def remote(where: Any, path: str = "", **options: Any) -> RemotePath:
    """Describe how to read a URL or a store; the result can be used wherever a path can.

        tensorkeep.open(tensorkeep.remote("s3://bucket/model/", region="eu-central-1"))
        tensorkeep.open(tensorkeep.remote(obstore.store.S3Store("bucket"), "model/"))

    A plain URL can be opened directly, too; credentials then come from the environment.

    Args:
        where: A URL; a result of this function, whose options are kept; or a store: one of obstore, or a file
            system of fsspec.
        path: The path in the store, or a path to join to the URL.
        **options: Options of the store: for http and https `headers`, which are sent to that server only; for s3, gs
            and az the configuration of obstore (`endpoint`, `region`, `access_key_id`, `skip_signature` …); for other
            schemes whatever the file system of fsspec takes. And read options: `head_nbytes`, `gap_nbytes`,
            `request_nbytes` and `whole_nbytes` in bytes, `timeout_s`, `pause_s` and `longest_pause_s` in seconds,
            `connections`, `attempts`; and for a URL `cache_dir` and `cache_nbytes`.

    Raises:
        UnsupportedError: If `where` is neither a URL nor a store, or an option is invalid.
    """
    given = {name: options.pop(name) for name in _READ_OPTIONS & options.keys()}
    if isinstance(where, RemotePath):
        known = msgspec.structs.asdict(where._read_options)
        url = join_url(where._url, path) if path else where._url
        return RemotePath._made(url, {**where._options, **options}, where._store, _read_options_of(known | given))
    read_options = _read_options_of(given)
    if is_url(where):
        return RemotePath._checked(join_url(where, path) if path else where, options, read_options)
    if isinstance(where, str) or options or read_options.cache_dir is not None:
        raise UnsupportedError(
            "neither a URL nor a store", expected="one such as s3://bucket/model", found=repr(where)[:100]
        )
    imported(_STORES).store_over(where)
    return RemotePath._made(f"{type(where).__name__.lower()}://{path}", {}, where, read_options)


def _read_options_of(given: dict[str, Any]) -> RemoteOptions:
    if given.get("cache_dir") is not None:
        given["cache_dir"] = local_path(given["cache_dir"], hint="Name a local directory")
    try:
        return msgspec.convert(given, RemoteOptions)
    except msgspec.ValidationError as error:
        raise UnsupportedError("an option of tensorkeep.remote is invalid", found=str(error)) from None
