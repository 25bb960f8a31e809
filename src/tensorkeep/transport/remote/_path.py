"""A URL that knows its store: a path that can be handed to everything that takes paths."""

from __future__ import annotations

from typing import Any

from tensorkeep.errors import UnsupportedError
from tensorkeep.transport.remote._base import RemoteStore
from tensorkeep.transport.remote._source import Manner, RemoteSource
from tensorkeep.transport.remote._stores import store_and_path, store_over
from tensorkeep.transport.remote._urls import is_url, join_url, shown_url, split_url

__all__ = ["RemotePath", "remote"]

_MANNER = frozenset(Manner.__struct_fields__)


class RemotePath(str):
    """A URL together with what is needed to read it; made by `remote`, or of a plain URL by whoever opens it.

    As a text it is the URL without secrets, so that it can be shown.
    """

    __slots__ = ("_manner", "_options", "_store", "_url")

    _url: str
    _options: dict[str, Any]
    _store: Any
    _manner: Manner

    @classmethod
    def of(cls, url: str) -> RemotePath:
        """Return the path of a URL, or the path itself.

        Args:
            url: A URL, or such a path.
        """
        return url if isinstance(url, RemotePath) else cls._made(url, {}, None, Manner())

    @classmethod
    def _made(cls, url: str, options: dict[str, Any], store: Any, manner: Manner) -> RemotePath:
        path = str.__new__(cls, shown_url(url))
        path._url, path._options, path._store, path._manner = url, options, store, manner
        return path

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it was made of."""
        return RemotePath._made, (self._url, self._options, self._store, self._manner)

    def joined(self, name: str) -> RemotePath:
        """Return the path of something below this one.

        Args:
            name: A relative name.
        """
        return self._made(join_url(self._url, name), self._options, self._store, self._manner)

    def split(self) -> tuple[RemotePath, str]:  # type: ignore[override]
        """Return what this stands in, and its name."""
        directory, name = split_url(self._url)
        return self._made(directory, self._options, self._store, self._manner), name

    def open(self) -> RemoteSource:
        """Open the object.

        Raises:
            SourceMissingError: If there is none.
            TransportError: If it cannot be read.
        """
        store, path = self._found()
        return RemoteSource(store.at(path), self._manner)

    def names(self) -> list[str] | None:
        """Return the names of what stands right below; None where the store cannot say.

        Raises:
            TransportError: If it fails.
        """
        store, path = self._found()
        return store.names(path)

    def _found(self) -> tuple[RemoteStore, str]:
        if self._store is not None:
            return store_over(self._store), self._url.partition("://")[2].strip("/")
        return store_and_path(self._url, self._options)


def remote(where: Any, path: str = "", **options: Any) -> RemotePath:
    """Say how something remote is read; the result goes wherever a path does.

        tensorkeep.open(tensorkeep.remote("s3://bucket/model/", region="eu-central-1"))
        tensorkeep.open(tensorkeep.remote(obstore.store.S3Store("bucket"), "model/"))

    A plain URL can be opened too; credentials then come from the environment.

    Args:
        where: A URL; or a store: one of obstore, or a file system of fsspec.
        path: The path in the store, where it is one.
        **options: What the store takes: for s3, gs and az the configuration of obstore (`endpoint`, `region`,
            `access_key_id`, `skip_signature` …), for http `headers`, and `client_options`; for all others what the
            file system of fsspec takes. And how much is read at a time: `head_nbytes`, `gap_nbytes`, `request_nbytes`
            and `whole_nbytes` in bytes, `connections`, `attempts`.

    Raises:
        UnsupportedError: If it is neither a URL nor a store.
    """
    manner = Manner(**{name: options.pop(name) for name in _MANNER & options.keys()})
    if is_url(where):
        return RemotePath._made(where, options, None, manner)
    if isinstance(where, str) or options:
        raise UnsupportedError("no URL and no store", expected="such as s3://bucket/model", found=repr(where)[:100])
    store_over(where)
    return RemotePath._made(f"{type(where).__name__.lower()}://{path.lstrip('/')}", {}, where, manner)
