"""Byte sources that keep the contract: of one file each, of several, checked ones, and those behind a URL."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tensorkeep import remote
from tensorkeep.digests import digest_of
from tensorkeep.encryption import BLOCK_NBYTES, DecryptingSource, Key
from tensorkeep.encryption._cipher import BlockCipher
from tensorkeep.transport import (
    ByteRange,
    ByteSource,
    DigestedRanges,
    JoinedSource,
    LocalFile,
    MemorySource,
    StreamSource,
    VerifyingSource,
)
from tensorkeep.transport.system import _platform
from tests.contracts.byte_source import CONTENT, ByteSourceContract
from tests.support.remote.fault_server import FaultServer

QUICK = {"pause_s": 0.001, "longest_pause_s": 0.01, "timeout_s": 5.0, "attempts": 2}
SMALL = QUICK | {"head_nbytes": 100, "request_nbytes": 2**20, "gap_nbytes": 64}


class TestBytes(ByteSourceContract):
    open = staticmethod(lambda path: MemorySource(path.read_bytes()))


class TestBytearray(ByteSourceContract):
    open = staticmethod(lambda path: MemorySource(bytearray(path.read_bytes())))


class FileContract(ByteSourceContract):
    def cut(self, path: Path) -> None:
        os.truncate(path, len(CONTENT) // 2)


class TestMappedFile(FileContract):
    open = staticmethod(lambda path: LocalFile(str(path), backend="mmap"))


class TestReadFile(FileContract):
    open = staticmethod(lambda path: LocalFile(str(path), backend="pread"))


@pytest.fixture
def without_positioned_io(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_platform, "HAS_POSITIONED_IO", False)


@pytest.mark.usefixtures("without_positioned_io")
class TestReadFileOnOtherSystems(TestReadFile):
    pass


class TestFileObject(FileContract):
    open = staticmethod(lambda path: StreamSource(path.open("rb")))
    ends_with_close = False


class TestUnbufferedFileObject(FileContract):
    open = staticmethod(lambda path: StreamSource(path.open("rb", buffering=0)))
    ends_with_close = False


class TestBytesIO(ByteSourceContract):
    open = staticmethod(lambda path: StreamSource(io.BytesIO(path.read_bytes())))
    ends_with_close = False


def joined(path: Path) -> ByteSource:
    """Return two halves of a file, one mapped and one read, as one source."""
    half = path.stat().st_size // 2
    first, second = LocalFile(str(path), backend="mmap"), LocalFile(str(path), backend="pread")
    return JoinedSource([(first, ByteRange(0, half)), (second, ByteRange(half, second.nbytes))], str(path))


class TestJoined(FileContract):
    open = staticmethod(joined)


def verifying(path: Path) -> ByteSource:
    data = path.read_bytes()
    middle = ByteRange(len(data) // 3, len(data) // 2)
    digest = digest_of(data[middle.start : middle.stop])
    ranges = partial(DigestedRanges.of, {"w": middle}, {"w": digest})
    return VerifyingSource(LocalFile(str(path), backend="pread"), ranges)


class TestVerifying(FileContract):
    open = staticmethod(verifying)


def decrypting(path: Path) -> ByteSource:
    """Encrypt a file beside it, and decrypt it from memory."""
    key, salt, data = Key(bytes(32)), bytes(32), path.read_bytes()
    cipher = BlockCipher(key, salt, len(data))
    stored = bytearray()
    for number, start in enumerate(range(0, len(data), BLOCK_NBYTES)):
        block = data[start : start + BLOCK_NBYTES]
        into = bytearray(len(block) + 16)
        cipher.encrypt(number, block, memoryview(into))
        stored += into
    return DecryptingSource(MemorySource(b"header" + stored, str(path)), 6, len(data), key, salt)


class TestDecrypting(ByteSourceContract):
    open = staticmethod(decrypting)


class WebContract(ByteSourceContract):
    """A file on a web server.

    Attributes:
        options: How it is read.
        server: The server, while a source is open.
    """

    options: ClassVar[dict[str, Any]] = SMALL
    server: FaultServer

    @contextmanager
    def opened(self, path: Path) -> Iterator[ByteSource]:
        with FaultServer({path.name: path.read_bytes()}) as server:
            type(self).server = server
            with closing(remote(server.url + path.name, **self.own_options(path)).open()) as source:
                yield source

    def own_options(self, path: Path) -> dict[str, Any]:
        return self.options

    def cut(self, path: Path) -> None:
        self.server.files[path.name] = CONTENT[: len(CONTENT) // 2]


class TestWeb(WebContract):
    pass


class TestWebInLargeRequests(WebContract):
    options = QUICK | {"head_nbytes": 100, "connections": 2}


class TestCached(WebContract):
    def own_options(self, path: Path) -> dict[str, Any]:
        return SMALL | {"cache_dir": str(path.parent / "cache")}


class TestFsspec(ByteSourceContract):
    @contextmanager
    def opened(self, path: Path) -> Iterator[ByteSource]:
        fsspec = pytest.importorskip("fsspec")
        fsspec.filesystem("memory").pipe_file("/contract/content", path.read_bytes())
        with closing(remote("memory://contract/content", **SMALL).open()) as source:
            yield source

    def cut(self, path: Path) -> None:
        import fsspec

        fsspec.filesystem("memory").pipe_file("/contract/content", CONTENT[: len(CONTENT) // 2])


class TestObstore(ByteSourceContract):
    store: Any

    @contextmanager
    def opened(self, path: Path) -> Iterator[ByteSource]:
        stores = pytest.importorskip("obstore.store")
        type(self).store = stores.MemoryStore()
        self.store.put("content", path.read_bytes())
        with closing(remote(self.store, "content", **SMALL).open()) as source:
            yield source

    def cut(self, path: Path) -> None:
        self.store.put("content", CONTENT[: len(CONTENT) // 2])
