"""Reads pickles in separate processes with limits on time and memory, and reports the outcome and cost of each.

A clean process forks one for each pickle, so that starting takes a millisecond.
"""

# ruff: noqa: S603 - it starts only this interpreter, and itself

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from datetime import time as time_of_day
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, NamedTuple, Self, cast

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import TensorkeepError
from tensorkeep.formats.pickles import read_pickle
from tensorkeep.formats.pickles.limits._graph import children_of
from tensorkeep.formats.pickles.machine._context import Context, Dangerous
from tensorkeep.formats.pickles.machine._loop import run_pickle
from tensorkeep.formats.pickles.values._records import (
    ArrayRecord,
    CompositeRecord,
    DefaultDict,
    Deque,
    DtypeRecord,
    Label,
    Name,
    Namespace,
    StorageRecord,
    StorageView,
    TensorRecord,
    Unknown,
)
from tensorkeep.transport import MemorySource

__all__ = ["Apart", "Outcome", "Reader", "read", "unknowns_in"]

Reader = Literal["machine", "file"]
"""The opcodes alone, or a whole file of any form."""

_PLAIN_KINDS = (str, int, float, bool, bytes, bytearray, complex, type(None), list, tuple, dict, set, frozenset)
_OTHER_KINDS = (range, slice, date, datetime, time_of_day, timedelta, timezone, Decimal, OrderedDict, Counter)
_RECORDS = (Unknown, Name, Label, Namespace, Deque, DefaultDict, StorageRecord, StorageView, TensorRecord)
_MORE_RECORDS = (CompositeRecord, DtypeRecord, ArrayRecord)
_KINDS = frozenset((*_PLAIN_KINDS, *_OTHER_KINDS, *_RECORDS, *_MORE_RECORDS))
"""All types of which a value may be made."""


class Outcome(NamedTuple):
    """The outcome of one pickle.

    Attributes:
        error: Name of the error's class; `"FOREIGN …"` for one that is not tensorkeep's, `"EXIT …"` if the process
            died, `"TIMEOUT"` if it hung; None for a value.
        words: The error's message, or a short text of the value.
        unknowns: Names of all inert records in the value.
        seconds: Processor time of the read.
        peak_nbytes: Memory beyond what the process had before.
    """

    error: str | None
    words: str
    unknowns: tuple[str, ...]
    seconds: float
    peak_nbytes: int


def read(data: bytes, reader: Reader = "machine", dangerous: Dangerous = "refuse", *, strict: bool = False) -> Any:
    """Read a pickle, or a file of pickles, in this process, and check the result.

    Args:
        data: The bytes.
        reader: What they are.
        dangerous: What to do with dangerous names.
        strict: Whether anything but tensors and plain data is refused.

    Returns:
        The value.

    Raises:
        TensorkeepError: As the reader raises it.
        RuntimeError: If the value contains a foreign type, or a tensor outside its storage.
    """
    if reader == "machine":
        value = run_pickle(data, 0, Context(strict=strict, dangerous=dangerous))[0]
    else:
        document = read_pickle(MemorySource(data, "hostile.pt"), strict=strict, dangerous=dangerous)
        value = document.value
        for key, span in document.spans.items():
            if not (0 <= span.start <= span.stop <= len(data)) or len(span) != document.storages[key].nbytes:
                raise RuntimeError(f"storage {key!r} is outside the file: {span}")
        if document.spans.keys() != document.storages.keys():
            raise RuntimeError("storages without bytes, or bytes without storages")
    for fault in _faults_in(value):
        raise RuntimeError(fault)
    return value


def _faults_in(value: Any) -> Iterator[str]:
    for node in _nodes_of(value):
        if type(node) not in _KINDS:
            yield f"a value of a foreign type: {type(node)}"
        elif type(node) is TensorRecord and node.storage is not None:
            bits = ALL_BY_NAME[node.dtype].bits
            last = node.offset + sum(
                (extent - 1) * stride for extent, stride in zip(node.shape, node.strides, strict=True)
            )
            numbers = (*node.shape, *node.strides, node.offset)
            if min(numbers) < 0 or max(numbers) >= 2**63:
                yield f"a tensor with impossible values: {node}"
            elif 0 not in node.shape and (last + 1) * bits > 8 * node.storage.nbytes:
                yield f"a tensor outside its storage: {node}"
        elif type(node) is ArrayRecord and type(node.data) is not (list if node.holds_objects else bytes):
            yield f"an array without its elements: {node}"


def _nodes_of(value: Any) -> Iterator[Any]:
    """Yield everything a value contains, each object once."""
    waiting, seen = [value], set()
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting.extend(children_of(node))


def unknowns_in(value: Any) -> list[Unknown]:
    """Return all inert records in a value, each once."""
    return [node for node in _nodes_of(value) if isinstance(node, Unknown)]


class Apart:
    """A process that forks one process per pickle; use it in a `with` block.

    Args:
        folder: Their working directory, where a payload would leave its traces.
        max_nbytes: Maximum memory of each, beyond what it starts with.
        timeout_s: Seconds until one is killed.

    Attributes:
        folder: The working directory.
    """

    def __init__(self, folder: Path, *, max_nbytes: int = 1 << 30, timeout_s: float = 20) -> None:
        """Start it."""
        self.folder = folder
        command = [sys.executable, str(Path(__file__).resolve()), str(max_nbytes), str(timeout_s)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder)
        self._requests = cast("IO[bytes]", self._process.stdin)
        self._answers = cast("IO[bytes]", self._process.stdout)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End it."""
        self._requests.close()
        self._process.wait()
        self._answers.close()

    def read(self, data: bytes, reader: Reader = "machine", dangerous: Dangerous = "refuse") -> Outcome:
        """Read one pickle; the arguments are those of the function `read`."""
        self._requests.write(json.dumps([len(data), reader, dangerous]).encode() + b"\n" + data)
        self._requests.flush()
        error, words, unknowns, seconds, peak_nbytes = json.loads(self._answers.readline())
        return Outcome(error, words, tuple(unknowns), seconds, peak_nbytes)


def _kib(field: str) -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field))


def _outcome(data: bytes, reader: Reader, dangerous: Dangerous, max_nbytes: int) -> list[Any]:
    limit = _kib("VmSize:") * 1024 + max_nbytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    before = _kib("VmRSS:")
    begin = time.process_time()
    error, words, unknowns = None, "", []
    try:
        value = read(data, reader, dangerous)
        seconds = time.process_time() - begin
        unknowns = sorted({unknown.qualified_name for unknown in unknowns_in(value)})
        words = ascii(value)[:300] if len(data) < 2000 else type(value).__name__
        del value  # freeing it must not crash the process either
    except TensorkeepError as caught:
        seconds = time.process_time() - begin
        error, words = type(caught).__name__, str(caught)
    except BaseException as caught:  # noqa: BLE001 - any error here is a finding
        seconds = time.process_time() - begin
        error, words = f"FOREIGN {type(caught).__name__}", str(caught)[:300]
    return [error, words, unknowns, seconds, (_kib("VmHWM:") - before) * 1024]


def _fork(data: bytes, reader: Reader, dangerous: Dangerous, max_nbytes: int, timeout_s: float) -> list[Any]:
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        try:
            os.write(sender, json.dumps(_outcome(data, reader, dangerous, max_nbytes)).encode()[:60_000])
            os._exit(0)
        finally:
            os._exit(70)
    os.close(sender)
    with os.fdopen(receiver, "rb") as answers:
        is_ready = bool(select.select([answers], [], [], timeout_s)[0])
        answer = answers.read() if is_ready else b""
    with contextlib.suppress(ProcessLookupError):
        if not is_ready:
            os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not is_ready:
        return ["TIMEOUT", f"still running after {timeout_s} s", [], timeout_s, 0]
    if status or not answer:
        return [f"EXIT {status}", "the process died", [], 0, 0]
    outcome: list[Any] = json.loads(answer)
    return outcome


def _serve(max_nbytes: int, timeout_s: float) -> None:
    while line := sys.stdin.buffer.readline():
        nbytes, reader, dangerous = json.loads(line)
        outcome = _fork(sys.stdin.buffer.read(nbytes), reader, dangerous, max_nbytes, timeout_s)
        sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve(int(sys.argv[1]), float(sys.argv[2]))
