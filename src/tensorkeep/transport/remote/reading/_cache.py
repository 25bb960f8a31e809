"""Objects whose blocks are cached on disk, so that no process requests the same bytes twice.

Blocks are kept by URL and version, and only where the server can be asked for that version alone: it has a strong
ETag, or a number. The first request is always made: it says which version is there now, and whether this user may
read it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from tensorkeep.digests import digest_of
from tensorkeep.errors import TransientError, TransportError
from tensorkeep.transport.remote.objects import (
    Chunks,
    ManyRefusedError,
    Opening,
    RemoteObject,
    RemoteOptions,
    Stream,
    Version,
    copy_range,
)
from tensorkeep.transport.remote.reading._block_files import BlockFiles
from tensorkeep.transport.sources import ByteRange

_BLOCK_NBYTES: Final = 2**20
_RUN_NBYTES: Final = 4 * _BLOCK_NBYTES
"""Bytes that one request brings at most; so much is in memory before it goes where it is wanted."""

_STEP_NBYTES: Final = 2**18

_KNOWN_BY_NBYTES: Final = 2**10
"""First bytes that distinguish versions with the same ETag: they contain the digest of the header."""

_is_secret = re.compile(r".*(?:key|secret|token|passw|credential|header|auth|sig)", re.IGNORECASE).match
_is_signature = re.compile(r"x-(?:amz|goog)-", re.IGNORECASE).match
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")


def cached(
    remote: RemoteObject, read_options: RemoteOptions, url: str, options: Mapping[str, Any]
) -> tuple[RemoteObject, RemoteOptions]:
    """Return an object with a cache, and suitable read options; both unchanged without a `cache_dir`."""
    if read_options.cache_dir is None:
        return remote, read_options
    blocks = BlockFiles(read_options.cache_dir, read_options.cache_nbytes)
    wide = msgspec.structs.replace(read_options, gap_nbytes=max(read_options.gap_nbytes, _BLOCK_NBYTES))
    return _CachedObject(remote, blocks, digest_of(_place_of(url, options)), read_options), wide


def _place_of(url: str, options: Mapping[str, Any]) -> bytes:
    """Return what tells an object from all others, wherever they are; it has nothing that must stay secret.

    Passwords, tokens and signatures, which change, say nothing of the object.
    """
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0].partition(":")[0]
    query = "&".join(sorted(part for part in parts.query.split("&") if not _is_signature(part)))
    place = urlunsplit((parts.scheme.lower(), parts.netloc.rpartition("@")[2], parts.path, query, ""))
    plain = sorted(
        (name, str(value))
        for name, value in options.items()
        if isinstance(value, str | int | bool) and not _is_secret(name)
    )
    headers = {**(options.get("headers") or {})}
    told = sorted((str(name).lower(), str(value)) for name, value in headers.items() if not _is_secret(str(name)))
    return msgspec.json.encode((place, user, plain, told, [os.environ.get(name) for name in _ENDPOINTS]))


class _CachedObject:
    """An object whose blocks are cached."""

    takes_many = False

    def __init__(self, remote: RemoteObject, blocks: BlockFiles, place: bytes, read_options: RemoteOptions) -> None:
        self.name = remote.name
        self._remote = remote
        self._blocks = blocks
        self._place = place
        self._read_options = read_options
        self._head = b""

    def open(self, nbytes: int, *, max_whole_nbytes: int) -> Opening:
        """Ask for the first bytes; see `RemoteObject.open`."""
        opening = self._remote.open(nbytes, max_whole_nbytes=max_whole_nbytes)
        self._head = digest_of(memoryview(opening.head)[:_KNOWN_BY_NBYTES])
        return opening

    def stream(self, span: ByteRange, version: Version) -> Stream:
        """Stream a range, and request only what is not cached."""
        if not version.is_pinned:
            return self._remote.stream(span, version)
        return Chunks(self._parts(span, version))

    def stream_many(self, spans: Sequence[ByteRange], version: Version) -> Stream:  # noqa: ARG002 - the protocol's
        """Refuse: ranges that are far apart share no block; see `RemoteObject.stream_many`."""
        raise ManyRefusedError("blocks are asked for one by one", path=self.name)

    def _parts(self, span: ByteRange, version: Version) -> Iterator[memoryview]:
        """Give the bytes of a range in order."""
        key = self._key(version)
        start = span.start
        while start < span.stop:
            number = start // _BLOCK_NBYTES
            first = number * _BLOCK_NBYTES
            data = self._blocks.get(key, number) or self._brought(key, self._run(key, number, span.stop), version)
            part = data[start - first : span.stop - first]
            if not part:
                raise TransportError("the cache has a block of another length", path=self.name)
            yield part
            start += len(part)

    def _key(self, version: Version) -> str:
        known = (version.nbytes, version.etag, str(version.modified), version.number, _BLOCK_NBYTES)
        return digest_of(self._place + self._head + msgspec.json.encode(known)).hex()[:40]

    def _run(self, key: str, number: int, stop: int) -> ByteRange:
        """Return a range of whole blocks that are not here, from one on, up to the one that holds the last byte."""
        end = number + 1
        while end * _BLOCK_NBYTES < stop and (end - number) * _BLOCK_NBYTES < _RUN_NBYTES:
            if self._blocks.has(key, end):
                break
            end += 1
        return ByteRange(number * _BLOCK_NBYTES, end * _BLOCK_NBYTES)

    def _brought(self, key: str, run: ByteRange, version: Version) -> memoryview:
        """Ask for blocks, and keep them."""
        run = ByteRange(run.start, min(run.stop, version.nbytes))
        data = memoryview(bytearray(len(run)))

        def write(offset: int, piece: memoryview) -> None:
            data[offset - run.start : offset - run.start + len(piece)] = piece

        try:
            buffer = memoryview(bytearray(_STEP_NBYTES))
            copy_range(self._remote, version, run, buffer, write, patience=self._read_options.patience())
        except TransientError as error:  # which was tried often enough
            raise TransportError(**error.fields()) from None
        for start in range(0, len(run), _BLOCK_NBYTES):
            self._blocks.put(key, (run.start + start) // _BLOCK_NBYTES, data[start : start + _BLOCK_NBYTES])
        return data
