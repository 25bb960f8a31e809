"""Files on web servers, read by range."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from tensorkeep.errors import AccessDeniedError, SourceMissingError, TransientError, TransportError
from tensorkeep.texts import shown_url
from tensorkeep.transport.remote.http._connections import Answer, Connections
from tensorkeep.transport.remote.http._multipart import Parts, boundary_of
from tensorkeep.transport.remote.objects import (
    ManyRefusedError,
    Opening,
    Version,
    changed,
    whole_file_too_large,
)
from tensorkeep.transport.sources import ByteRange

_MAX_REDIRECTS: Final = 10
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_EXPIRED: Final = frozenset({400, 401, 403, 404, 410})
"""Statuses for a signed URL, the target of a redirect, that has expired."""

_BUSY: Final = frozenset({408, 425, 429})
_KEPT: Final = "!#$%&'()*+,/:;=?@[]~"
"""Characters that are kept in URLs; all others, such as a space, are escaped."""

_match_range = re.compile(r"bytes +([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})").fullmatch
_match_linked = re.compile(r'"?([0-9a-f]{64})"?').fullmatch
"""The SHA-256 that the Hub adds when it redirects to a large file."""

_is_seconds = re.compile(r"[0-9]{1,9}").fullmatch


_MAX_LISTING_NBYTES: Final = 2**26
"""Bytes of a directory listing; about 500,000 files fit."""


class _Listing(msgspec.Struct):
    names: list[str]


class HttpStore:
    """Files of one web server.

    Attributes:
        connections: Shared by all requests.
        headers: Sent with each request to this server, and to no other.
        takes_many: Whether to ask for several ranges in one request; True until the server sends something else.
        lists: Whether the server lists directories, as each of its responses says; None before the first.
    """

    def __init__(self, connections: Connections, origin: str, headers: Mapping[str, str]) -> None:
        self.connections = connections
        self.headers = dict(headers)
        self.takes_many = True
        self.lists: bool | None = None
        self._origin = origin

    def at(self, path: str) -> HttpObject:
        """Return a file, without a request."""
        return HttpObject(self, f"{self._origin}/{quote(path, safe=_KEPT)}")

    def names(self, path: str) -> list[str] | None:
        """List a directory, if the server may be one of `tensorkeep serve`.

        Other servers have no common way to list directories, and get one such request at most.
        """
        if self.lists is False:
            return None
        before, mark, query = path.partition("?")
        slash = "/" if before and not before.endswith("/") else ""
        try:
            return self.at(f"{before}{slash}{mark}{query}").names()
        except TransportError as error:
            if self.lists or isinstance(error, TransientError):
                raise
        return None


class HttpObject:
    """A file on a web server."""

    def __init__(self, store: HttpStore, url: str) -> None:
        self._store = store
        self._url = url
        self._target: str | None = None
        self._sha256: str | None = None
        self.name = shown_url(url)

    def open(self, nbytes: int, *, max_whole_nbytes: int) -> Opening:
        """Request the first bytes."""
        answer = self._ask({"Range": f"bytes=0-{nbytes - 1}"})
        try:
            if answer.status == 416 and not _total_of(answer):  # there is not even a first byte
                return Opening(self._version(answer, 0), b"")
            if answer.status == 200 and "Tensorkeep-Directory" in answer.headers:
                raise SourceMissingError(
                    "there is no such file", path=self.name, found="a directory", hint="End the URL with a slash"
                )
            if answer.status == 200:
                return self._whole(answer, max_whole_nbytes, nbytes)
            span, version = self._given(answer)
            if span.start != 0 or span.stop > nbytes:
                raise _another_range(self.name, ByteRange(0, min(nbytes, version.nbytes)), span)
            return Opening(version, self._read_whole(answer, span.stop))
        finally:
            answer.close()

    def stream(self, span: ByteRange, version: Version) -> Answer:
        """Request a range."""
        headers = {"Range": f"bytes={span.start}-{span.stop - 1}"}
        if version.is_pinned and version.etag is not None:
            headers["If-Match"] = version.etag
        answer = self._ask(headers)
        try:
            self._check(answer, span, version)
        except BaseException:
            answer.close()
            raise
        return answer

    @property
    def takes_many(self) -> bool:
        """Whether to ask for several ranges in one request."""
        return self._store.takes_many

    def stream_many(self, spans: Sequence[ByteRange], version: Version) -> Parts:
        """Request several ranges at once."""
        headers = {"Range": "bytes=" + ",".join(f"{span.start}-{span.stop - 1}" for span in spans)}
        if version.is_pinned and version.etag is not None:
            headers["If-Match"] = version.etag
        answer = self._ask(headers)
        try:
            return self._parts(answer, spans, version)
        except BaseException as error:
            if isinstance(error, ManyRefusedError):
                self._store.takes_many = False
            answer.close()
            raise

    def _parts(self, answer: Answer, spans: Sequence[ByteRange], version: Version) -> Parts:
        if answer.status == 412:
            raise changed(self.name, version)
        found = self._version(answer, version.nbytes)
        if answer.status == 206 and not found.is_same(version):
            raise changed(self.name, version, found)
        boundary = boundary_of(answer.headers.get("Content-Type") or "") if answer.status == 206 else None
        if boundary is None:
            raise ManyRefusedError("the server sends one range at a time", path=self.name)
        self._refuse_encoding(answer)
        return Parts(answer, boundary, spans, version.nbytes, self.name)

    def names(self) -> list[str] | None:
        """Return the names in this directory; None if the server does not list it after all."""
        answer = self._ask({"Accept": "application/json"})
        try:
            if answer.status != 200 or "Tensorkeep-Directory" not in answer.headers:
                return None
            data = self._whole(answer, _MAX_LISTING_NBYTES).head
        finally:
            answer.close()
        try:
            names = msgspec.json.decode(data, type=_Listing).names
        except msgspec.DecodeError as error:
            raise TransportError("not a directory listing", path=self.name, found=str(error)) from None
        return sorted(name.removesuffix("/") for name in names)

    def _check(self, answer: Answer, span: ByteRange, version: Version) -> None:
        """Refuse a response with another range or version."""
        if answer.status == 412:
            raise changed(self.name, version)
        if answer.status == 416:
            raise changed(self.name, version, self._version(answer, _total_of(answer)))
        if answer.status == 200:
            given, found = self._given_whole(answer)
        else:
            given, found = self._given(answer)
        if not found.is_same(version):
            raise changed(self.name, version, found)
        if answer.status == 200 and span.start == 0:  # the caller reads only the range
            return
        if answer.status == 200:  # one of several servers behind a name may not support ranges
            raise TransientError("the server sent the whole file instead of a range", path=self.name)
        if given.start != span.start or given.stop > span.stop:
            raise _another_range(self.name, span, given)

    def _ask(self, headers: Mapping[str, str]) -> Answer:
        """Request from the last redirect target, or else from the URL; return a useful response, or raise."""
        answer, url = self._follow(self._target or self._url, headers)
        if self._target is not None and answer.status in _EXPIRED:
            answer.close()
            self._target = None
            answer, url = self._follow(self._url, headers)
        if answer.status in {200, 206}:
            self._target = None if url == self._url else url
        if not self._store.lists and _origin_of(url) == _origin_of(self._url):
            self._store.lists = "Tensorkeep-Server" in answer.headers
        if answer.status in {200, 206, 412, 416}:
            return answer
        answer.close()
        names = {name.lower() for name in self._store.headers}
        raise _refused(answer, self.name, knows_us="authorization" in names)

    def _follow(self, url: str, headers: Mapping[str, str]) -> tuple[Answer, str]:
        for _ in range(_MAX_REDIRECTS + 1):
            is_own = _origin_of(url) == _origin_of(self._url)
            own = self._store.headers if is_own else {}
            answer = self._store.connections.get(
                url, {"Accept-Encoding": "identity", "Accept": "*/*", **own, **headers}
            )
            location = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or location is None:
                return answer, url
            answer.close()
            if is_own and (linked := _match_linked(answer.headers.get("X-Linked-ETag") or "")):
                self._sha256 = linked[1]
            url = self._redirected(url, location)
        raise TransportError("too many redirects", path=self.name)

    def _redirected(self, url: str, location: str) -> str:
        try:
            target = quote(urljoin(url, location), safe=_KEPT).partition("#")[0]
            scheme, host = _origin_of(target)
        except ValueError:
            raise TransportError("the server redirects to an invalid URL", path=self.name) from None
        if scheme not in {"http", "https"} or "@" in host or (url.startswith("https:") and scheme != "https"):
            raise TransportError("the server redirects to a URL that is not followed", path=self.name, found=scheme)
        return target

    def _version(self, answer: Answer, nbytes: int) -> Version:
        headers = answer.headers
        return Version(nbytes, headers.get("ETag"), headers.get("Last-Modified"), sha256=self._sha256)

    def _given(self, answer: Answer) -> tuple[ByteRange, Version]:
        """Return the range and the version of a response."""
        self._refuse_encoding(answer)
        text = answer.headers.get("Content-Range") or ""
        found = _match_range(text.strip())
        first, last, nbytes = (int(number) for number in found.groups()) if found else (0, 0, 0)
        if not first <= last < nbytes:
            raise TransportError("the server does not say which range it sends", path=self.name, found=text or None)
        return ByteRange(first, last + 1), self._version(answer, nbytes)

    def _given_whole(self, answer: Answer) -> tuple[ByteRange, Version]:
        """Return the range and the version of a response with the whole file."""
        self._refuse_encoding(answer)
        nbytes = _length_of(answer)
        if nbytes is None:
            raise TransientError("the server sent the whole file instead of a range", path=self.name)
        return ByteRange(0, nbytes), self._version(answer, nbytes)

    def _whole(self, answer: Answer, max_nbytes: int, head_nbytes: int = 0) -> Opening:
        """Read the whole file, since the server does not support ranges; of a larger one only the first bytes."""
        self._refuse_encoding(answer)
        nbytes = _length_of(answer)
        if nbytes is not None and nbytes > max_nbytes:
            head = self._read_whole(answer, min(nbytes, head_nbytes))
            return Opening(self._version(answer, nbytes), head, serves_ranges=False)
        data = self._read_whole(answer, nbytes) if nbytes is not None else self._read_to_end(answer, max_nbytes)
        return Opening(self._version(answer, len(data)), data)

    def _read_whole(self, answer: Answer, nbytes: int) -> bytearray:
        data = bytearray(nbytes)
        rest = memoryview(data)
        while rest:
            n_read = answer.read_into(rest)
            if not n_read:
                raise TransientError("the answer ended early", path=self.name)
            rest = rest[n_read:]
        return data

    def _read_to_end(self, answer: Answer, max_nbytes: int) -> bytearray:
        data = bytearray()
        piece = memoryview(bytearray(2**16))
        while n_read := answer.read_into(piece):
            data += piece[:n_read]
            if len(data) > max_nbytes:
                raise whole_file_too_large(self.name, None, max_nbytes)
        return data

    def _refuse_encoding(self, answer: Answer) -> None:
        encoding = answer.headers.get("Content-Encoding", "identity")
        if encoding.strip().lower() not in {"", "identity"}:
            raise TransportError("the server sends the file compressed", path=self.name, found=encoding[:100])


def _origin_of(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()


def _total_of(answer: Answer) -> int:
    total = (answer.headers.get("Content-Range") or "").rpartition("/")[2]
    return int(total) if re.fullmatch(r"[0-9]{1,19}", total) else 0


def _length_of(answer: Answer) -> int | None:
    length = answer.headers.get("Content-Length") or ""
    return int(length) if re.fullmatch(r"[0-9]{1,19}", length) else None


def _another_range(name: str, expected: ByteRange, found: ByteRange) -> TransportError:
    return TransportError(
        "the server sent another range than requested",
        path=name,
        expected=f"[{expected.start:,}, {expected.stop:,})",
        found=f"[{found.start:,}, {found.stop:,})",
    )


def _refused(answer: Answer, name: str, *, knows_us: bool) -> TransportError:
    """Return the error for a response without bytes of the file."""
    status = answer.status
    if status in {404, 410}:
        return SourceMissingError("there is no such file", path=name, found=f"status {status}")
    if status in {401, 407}:
        return AccessDeniedError(
            f"the server {'does not accept the' if knows_us else 'requires'} credentials ({status})",
            path=name,
            hint="Check the token or password"
            if knows_us
            else "Pass credentials with tensorkeep.remote(url, headers={...}), or as user and password in the URL",
        )
    if status == 403:
        return AccessDeniedError("the server denies access to the file (403)", path=name)
    if status in _BUSY or (status >= 500 and status not in {501, 505}):
        error = TransientError("the server could not be read", path=name, found=f"status {status}")
        after = answer.headers.get("Retry-After") or ""
        error.retry_after_s = float(after) if _is_seconds(after) else None
        return error
    return TransportError("the server does not send the file", path=name, found=f"status {status}")
