"""A URL that knows its store: a path that can be handed to everything that takes paths."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tensorkeep.errors import AccessDeniedError, SourceMissingError, UnsupportedError
from tensorkeep.transport.remote._base import Opening, RemoteStore
from tensorkeep.transport.remote._source import Manner, RemoteSource
from tensorkeep.transport.remote._stores import store_and_path, store_over
from tensorkeep.transport.remote._urls import is_url, join_url, shown_url, split_url

__all__ = ["RemotePath", "remote"]

_MANNER = frozenset(Manner.__struct_fields__)


class _Answers:
    """What stores have said to the paths of one family, where it is remembered."""

    def __init__(self) -> None:
        self.is_remembered = False
        self.openings: dict[str, Opening | SourceMissingError | AccessDeniedError] = {}
        self.names: dict[str, list[str] | None] = {}

    def forget(self) -> None:
        """Ask again from now on."""
        self.is_remembered = False
        self.openings.clear()
        self.names.clear()


class RemotePath(str):
    """A URL together with what is needed to read it; made by `remote`, or of a plain URL by whoever opens it.

    As a text it is the URL without secrets, so that it can be shown.
    """

    __slots__ = ("_answers", "_found", "_manner", "_options", "_store", "_url")

    _url: str
    _options: dict[str, Any]
    _store: Any
    _manner: Manner
    _answers: _Answers
    _found: RemoteStore | None

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
        path._answers, path._found = _Answers(), None
        return path

    def _of_family(self, url: str) -> RemotePath:
        """Return the path of another URL in the same store."""
        path = self._made(url, self._options, self._store, self._manner)
        path._answers, path._found = self._answers, self._found
        return path

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it was made of."""
        return RemotePath._made, (self._url, self._options, self._store, self._manner)

    @contextmanager
    def remembering(self) -> Iterator[RemotePath]:
        """Give the same path; of it, and of all that is joined to it in the block, nothing is asked twice."""
        path = self._made(self._url, self._options, self._store, self._manner)
        path._answers.is_remembered = True
        path._place()  # so that all use its connections
        try:
            yield path
        finally:
            path._answers.forget()

    def joined(self, name: str) -> RemotePath:
        """Return the path of something below this one.

        Args:
            name: A relative name.
        """
        return self._of_family(join_url(self._url, name))

    def split(self) -> tuple[RemotePath, str]:  # type: ignore[override]
        """Return what this stands in, and its name."""
        directory, name = split_url(self._url)
        return self._of_family(directory), name

    def open(self) -> RemoteSource:
        """Open the object.

        Raises:
            SourceMissingError: If there is none.
            AccessDeniedError: If the server does not let this user.
            TransportError: If it cannot be read.
        """
        store, path = self._place()
        known = self._answers.openings.get(self._url)
        if isinstance(known, SourceMissingError | AccessDeniedError):
            raise known.with_fields()
        try:
            source = RemoteSource(store.at(path), self._manner, known)
        except (SourceMissingError, AccessDeniedError) as error:
            if self._answers.is_remembered:
                self._answers.openings[self._url] = error.with_fields()
            raise
        if self._answers.is_remembered:
            self._answers.openings[self._url] = source.opening
        return source

    def names(self) -> list[str] | None:
        """Return the names of what stands right below; None where the store cannot say.

        Raises:
            TransportError: If it fails.
        """
        store, path = self._place()
        if self._url in self._answers.names:
            return self._answers.names[self._url]
        names = store.names(path)
        if self._answers.is_remembered:
            self._answers.names[self._url] = names
        return names

    def _place(self) -> tuple[RemoteStore, str]:
        """Return the store and the path in it."""
        if self._store is not None:
            store, path = store_over(self._store), self._url.partition("://")[2].strip("/")
        else:
            store, path = store_and_path(self._url, self._options, self._manner.timeout_s)
        self._found = store
        return store, path


def remote(where: Any, path: str = "", **options: Any) -> RemotePath:
    """Say how something remote is read; the result goes wherever a path does.

        tensorkeep.open(tensorkeep.remote("s3://bucket/model/", region="eu-central-1"))
        tensorkeep.open(tensorkeep.remote(obstore.store.S3Store("bucket"), "model/"))

    A plain URL can be opened too; credentials then come from the environment.

    Args:
        where: A URL; or a store: one of obstore, or a file system of fsspec.
        path: The path in the store, where it is one.
        **options: What the store takes: for http and https `headers`, which only that server gets; for s3, gs and az
            the configuration of obstore (`endpoint`, `region`, `access_key_id`, `skip_signature` …); for all others
            what the file system of fsspec takes. And how it is read: `head_nbytes`, `gap_nbytes`, `request_nbytes`
            and `whole_nbytes` in bytes, `timeout_s`, `pause_s` and `longest_pause_s` in seconds, `connections`,
            `attempts`.

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
