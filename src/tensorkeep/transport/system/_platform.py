"""The system calls that differ by platform, each with a fallback that works anywhere Python does.

`HAS_POSITIONED_IO` is false on Windows; the tests also make it false to run the fallbacks on Linux.
"""

from __future__ import annotations

import errno
import mmap
import os
import platform
import sys
import threading
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final

try:
    import fcntl

    HAS_LOCKS = True
except ImportError:  # Windows
    HAS_LOCKS = False


HAS_POSITIONED_IO = hasattr(os, "preadv")
HAS_GATHERED_WRITES = hasattr(os, "writev")
HANDLES_OPEN_FILES = os.name != "nt"
"""Whether a file that is open can be renamed and removed."""
HAS_FALLOCATE = hasattr(os, "posix_fallocate")
HAS_COPY_FILE_RANGE = hasattr(os, "copy_file_range")
HAS_SENDFILE = hasattr(os, "sendfile")

GATHER_MAX: Final = 1024
"""Buffers in one `writev`: IOV_MAX on Linux and macOS."""

_MAX_CALL_NBYTES: Final = 2**30
"""Bytes of one read call: Linux moves at most 2 GiB - 4 kiB, Windows' C library 2 GiB - 1."""

_seek_lock = threading.Lock()


def read_at(fd: int, offset: int, into: memoryview) -> int:
    """Fill a buffer from a position in a file; return the bytes read."""
    done = 0
    while done < len(into):
        part = into[done : done + _MAX_CALL_NBYTES]
        n = os.preadv(fd, [part], offset + done) if HAS_POSITIONED_IO else _seek_and_read(fd, offset + done, part)
        if n == 0:
            break
        done += n
    return done


def read_new(fd: int, offset: int, nbytes: int) -> bytes | bytearray:
    """Return bytes from a position in a file in new memory; fewer where it ends.

    Memory that is filled with zeros first, as `bytearray` is, takes several times as long.
    """
    if HAS_POSITIONED_IO and nbytes <= _MAX_CALL_NBYTES:
        data = os.pread(fd, nbytes, offset)
        if len(data) == nbytes:
            return data
    into = bytearray(nbytes)
    with memoryview(into) as view:  # a `bytearray` that is viewed cannot be cut
        n_read = read_at(fd, offset, view)
    del into[n_read:]
    return into


def _seek_and_read(fd: int, offset: int, into: memoryview) -> int:
    with _seek_lock:
        os.lseek(fd, offset, os.SEEK_SET)
        data = os.read(fd, len(into))
    into[: len(data)] = data
    return len(data)


def gather_write(fd: int, buffers: Sequence[memoryview]) -> int:
    """Write buffers one after another at the file's position, after short writes too; return their size in bytes."""
    pending = [buffer for buffer in buffers if buffer.nbytes]
    nbytes = left = sum(buffer.nbytes for buffer in pending)
    while left:
        written = os.writev(fd, pending) if HAS_GATHERED_WRITES else _write_first(fd, pending[0])
        left -= written
        if left:
            pending = _unwritten(pending, written)
    return nbytes


def _write_first(fd: int, buffer: memoryview) -> int:
    return os.write(fd, buffer.cast("B")[:_MAX_CALL_NBYTES])


def _unwritten(buffers: list[memoryview], written: int) -> list[memoryview]:
    """Return what is left of buffers after their first bytes were written."""
    first = 0
    while written >= buffers[first].nbytes:
        written -= buffers[first].nbytes
        first += 1
    return [buffers[first].cast("B")[written:], *buffers[first + 1 :]]


def write_at(fd: int, offset: int, data: memoryview) -> None:
    """Write bytes at an offset, and leave the file's position unchanged."""
    if not HAS_POSITIONED_IO:
        with _seek_lock:
            position = os.lseek(fd, 0, os.SEEK_CUR)
            os.lseek(fd, offset, os.SEEK_SET)
            gather_write(fd, [data])
            os.lseek(fd, position, os.SEEK_SET)
        return
    while data:
        written = os.pwrite(fd, data, offset)
        offset += written
        data = data[written:]


_CANNOT_COPY: Final = frozenset({
    *(errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP),
    *(errno.ENOTSOCK, errno.EBADF, errno.EPERM, errno.ETXTBSY),
})
"""errno values of a way of copying that does not work for these two files, or in this sandbox."""


def copy_range(source: int, offset: int, target: int, nbytes: int) -> int:
    """Copy bytes of one file to another's position, inside the kernel where it can."""
    if HAS_COPY_FILE_RANGE and (done := _unless_unsuited(os.copy_file_range, source, target, nbytes, offset)):
        return done
    if HAS_SENDFILE and (done := _unless_unsuited(os.sendfile, target, source, offset, nbytes)):
        return done
    data = memoryview(bytearray(nbytes))
    done = read_at(source, offset, data)
    gather_write(target, [data[:done]])
    return done


def _unless_unsuited(copy: Callable[..., int], *arguments: int) -> int:
    try:
        return copy(*arguments)
    except OSError as error:
        if error.errno not in _CANNOT_COPY:
            raise
        return 0


def preallocate(fd: int, nbytes: int) -> None:
    """Reserve blocks, so that a full disk is detected before the first write and the file is contiguous."""
    if not HAS_FALLOCATE or nbytes == 0:
        return
    try:
        os.posix_fallocate(fd, 0, nbytes)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}:
            raise


def sync_directory(path: str) -> None:
    """Make the names in a directory durable, where the system can open directories."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except (PermissionError, IsADirectoryError):  # Windows cannot open directories
        return
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EBADF}:  # file systems without directory fsync
            raise
    finally:
        os.close(fd)


def sync_file(path: str) -> None:
    """Wait until a file is on the disk; another process may have written it."""
    how = os.O_RDONLY if os.name != "nt" else os.O_RDWR  # Windows flushes only files that are open for writing
    fd = os.open(path, how | getattr(os, "O_BINARY", 0))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def begin_writeback(fd: int, start: int, nbytes: int) -> None:
    """Let the disk begin with bytes that a later fsync waits for (sync_file_range(2)); that one reports errors."""
    if HAS_SYNC_FILE_RANGE and hasattr((libc := _libc()[0]), "sync_file_range"):
        libc.sync_file_range(fd, start, nbytes, _SYNC_FILE_RANGE_WRITE)


HAS_SYNC_FILE_RANGE = sys.platform == "linux"
_SYNC_FILE_RANGE_WRITE: Final = 2


def exchange(one: str, other: str) -> bool:
    """Swap the names of two files or directories in one instant (renameat2(2), RENAME_EXCHANGE)."""
    if not HAS_EXCHANGE:
        return False
    libc, ctypes = _libc()
    if not hasattr(libc, "renameat2"):  # glibc before 2.28
        return False
    paths = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other))
    if libc.renameat2(*paths, _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}:
        return False
    raise OSError(number, os.strerror(number), one, None, other)


HAS_EXCHANGE = sys.platform == "linux"
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


def try_lock(fd: int, *, is_shared: bool = False) -> bool:
    """Take a lock on an open file, which the kernel releases when the process dies (flock(2))."""
    if not HAS_LOCKS:
        return True
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@cache
def host_tag() -> str:
    """Return eight hexadecimal digits that are equal for processes that share this kernel's locks."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(8)
    except OSError:
        return f"{zlib.crc32(platform.node().encode()):08x}"


def map_private(fd: int, start: int, nbytes: int) -> memoryview:
    """Map a part of a file privately: writing to the mapping does not change the file."""
    if sys.platform != "linux":
        return memoryview(mmap.mmap(fd, nbytes, access=mmap.ACCESS_COPY, offset=start))
    flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
    if sys.version_info >= (3, 13):
        writable = mmap.PROT_READ | mmap.PROT_WRITE
        return memoryview(mmap.mmap(fd, nbytes, flags=flags, prot=writable, offset=start, trackfd=False))
    return _map_by_libc(fd, start, nbytes, flags)


def mapped_pieces(fd: int, start: int, stop: int, piece_nbytes: int) -> Iterator[memoryview]:
    """Yield the bytes of a range of a file without a copy, where that cannot kill the process.

    Touching a mapped page that cannot be read kills the process (SIGBUS). Linux 5.14 can load the pages beforehand,
    and then reports an error instead (madvise, MADV_POPULATE_READ).
    """
    if not HAS_POPULATE:
        raise OSError(errno.EINVAL, "no MADV_POPULATE_READ on this platform")
    for window in range(start - start % mmap.ALLOCATIONGRANULARITY, stop, _WINDOW_NBYTES):
        nbytes = min(_WINDOW_NBYTES, stop - window)
        with (
            mmap.mmap(fd, nbytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, offset=window) as mapping,
            memoryview(mapping) as view,
        ):
            for begin in range(0, nbytes, piece_nbytes):
                end = min(begin + piece_nbytes, nbytes)
                mapping.madvise(_MADV_POPULATE_READ, begin, end - begin)
                with view[max(begin, start - window) : end] as piece:
                    yield piece


HAS_POPULATE = sys.platform == "linux"
_MADV_POPULATE_READ: Final = 22
_WINDOW_NBYTES: Final = 16 * 2**20

_MAP_NORESERVE: Final = 0x4000
"""Linux: reserve no swap for copy-on-write pages before they are written (mmap(2))."""


def _map_by_libc(fd: int, start: int, nbytes: int, flags: int) -> memoryview:
    """Map without `mmap.mmap`, which before Python 3.13 keeps a descriptor open for each mapping."""
    libc, ctypes = _libc()
    writable = mmap.PROT_READ | mmap.PROT_WRITE
    address = libc.mmap(None, nbytes, writable, flags, fd, start)
    if address in {None, 2**64 - 1, 2**32 - 1}:  # MAP_FAILED
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    owner = (ctypes.c_ubyte * nbytes).from_address(address)
    weakref.finalize(owner, libc.munmap, address, nbytes).atexit = False
    return memoryview(owner).cast("B")


@cache
def _libc() -> tuple[Any, Any]:
    import ctypes  # 5 ms, and only mappings need it

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
        ctypes.c_int64,
    )
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    if hasattr(libc, "sync_file_range"):
        libc.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return libc, ctypes
