"""The machine's limits: moving the same bytes, making the same objects, and nothing else."""

from __future__ import annotations

import gc
import json
import mmap
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from blake3 import blake3

from benchmarks.case import Contender

__all__ = [
    "DECODED_HEADER",
    "array_views",
    "blake3_by_all_cores",
    "copy_by_two_threads",
    "copy_into_fresh_memory",
    "copy_of_file",
    "decoded_headers",
    "mapped_pages",
    "read_by_two_threads",
    "read_into_by_two_threads",
    "touch_every_page",
    "without_collector",
    "write_buffers",
]

Bytes = npt.NDArray[np.uint8]
_READ_NBYTES = 2**24


def copy_into_fresh_memory(source: Bytes) -> Bytes:
    """Copy bytes into fresh memory: every page is faulted in."""
    fresh = np.empty_like(source)
    fresh[:] = source
    return fresh


def copy_by_two_threads(source: Bytes) -> Bytes:
    """Copy bytes into fresh memory by two threads, 16 MiB at a time."""
    fresh = np.empty_like(source)

    def copy(start: int) -> None:
        fresh[start : start + _READ_NBYTES] = source[start : start + _READ_NBYTES]

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(copy, range(0, len(source), _READ_NBYTES)))
    return fresh


def read_by_two_threads(path: Path) -> Bytes:
    """Read a file into fresh memory, 16 MiB at a time."""
    target = np.empty(path.stat().st_size, np.uint8)
    view = target.data
    with path.open("rb", buffering=0) as file, ThreadPoolExecutor(2) as readers:

        def read(start: int) -> int:
            return os.preadv(file.fileno(), [view[start : start + _READ_NBYTES]], start)

        done = sum(readers.map(read, range(0, len(view), _READ_NBYTES)))
    if done != len(target):
        raise RuntimeError(f"{done} of {len(target)} bytes were read")
    return target


def read_into_by_two_threads(paths: Sequence[Path], buffers: Sequence[Bytes]) -> None:
    """Fill buffers from files sequentially, headers included, ignoring names and shapes."""
    with ThreadPoolExecutor(2) as readers:
        done = sum(readers.map(lambda read: _read_at(*read), _reads(paths, buffers)))
    if done != sum(len(buffer) for buffer in buffers):
        raise RuntimeError(f"{done} bytes were read")


def _reads(paths: Sequence[Path], buffers: Sequence[Bytes]) -> Iterator[tuple[Path, int, memoryview]]:
    files = iter(paths)
    path, start, size = next(files), 0, paths[0].stat().st_size
    for buffer in buffers:
        if start + len(buffer) > size:
            path, start = next(files), 0
            size = path.stat().st_size
        for begin in range(0, len(buffer), _READ_NBYTES):
            yield path, start + begin, buffer.data[begin : begin + _READ_NBYTES]
        start += len(buffer)


def _read_at(path: Path, start: int, into: memoryview) -> int:
    with path.open("rb", buffering=0) as file:
        return os.preadv(file.fileno(), [into], start)


def blake3_by_all_cores(buffers: Iterable[Bytes]) -> None:
    """Compute one digest of buffers, each with all cores."""
    hasher = blake3(max_threads=blake3.AUTO)
    for buffer in buffers:
        hasher.update(buffer.data)
    hasher.digest()


def copy_of_file(source: Path, target: Path) -> None:
    """Run `cp`."""
    subprocess.run(["cp", source, target], check=True)


def write_buffers(buffers: Sequence[Bytes], target: Path, *, reserve: bool = True, durable: bool = False) -> None:
    """Write buffers by one system call each; one call for all of them was slower.

    Args:
        buffers: What to write; each small enough for one complete call.
        target: The file, created or truncated.
        reserve: Whether to reserve its blocks first, which is cheap on disk and costs a copy in memory.
        durable: Whether to fsync.
    """
    with target.open("wb", buffering=0) as file:
        if reserve:
            os.posix_fallocate(file.fileno(), 0, sum(len(buffer) for buffer in buffers))
        for buffer in buffers:
            if file.write(buffer.data) != len(buffer):
                raise RuntimeError(f"a write to {target} stopped early")
        if durable:
            os.fsync(file.fileno())


def mapped_pages(path: Path) -> Bytes:
    """Map a file with all its pages populated, so that touching them is free."""
    with path.open("rb") as file:
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        return np.frombuffer(mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ), np.uint8)


def touch_every_page(path: Path) -> int:
    """Map a file and read a byte of each page in order, at the speed of disk and read-ahead."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
        return int(np.frombuffer(mapping, np.uint8)[:: mmap.PAGESIZE].sum())


def array_views(n_arrays: int, nbytes: int) -> list[npt.NDArray[np.float32]]:
    """Create arrays over one buffer, the least that a loader creates."""
    buffer = bytearray(nbytes)
    return [np.ndarray((nbytes // 4,), np.float32, buffer, 0) for _ in range(n_arrays)]


def without_collector(name: str, run: Callable[[Any], Any]) -> Contender:
    """Declare a limit that creates many objects, with the cyclic garbage collector paused."""

    def run_paused(subject: Any) -> Any:
        gc.disable()
        try:
            return run(subject)
        finally:
            gc.enable()

    return Contender(name, run_paused)


def decoded_headers(headers: Callable[[Any], Iterable[bytes]]) -> tuple[Contender, Contender]:
    """Declare the limits of reading headers: decoding into plain dicts, unchecked.

    Args:
        headers: Returns the headers of a subject.
    """

    def decoded(name: str, decode: Callable[[bytes], Any]) -> Contender:
        return without_collector(name, lambda subject: [decode(header) for header in headers(subject)])

    return (
        decoded("the header decoded by msgspec", msgspec.json.decode),
        decoded("the header decoded by json", json.loads),
    )


DECODED_HEADER = decoded_headers(lambda source: [source.header])
"""For subjects that have one `header`."""
