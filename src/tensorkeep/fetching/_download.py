"""Many ranges at once, each written to its place as it comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final

from tensorkeep.fetching._spans import cut, without
from tensorkeep.fetching._staging import Staging
from tensorkeep.parallel import ProgressMeter
from tensorkeep.transport import ByteRange, PartialFile, RemoteSource

_PARTS_NBYTES: Final = (2**22, 2**25)
"""Bytes of one request, at least and at most."""

_PARTS_OF_EACH: Final = 4
"""Requests that each thread makes at least, if there is enough to do: so all end at about the same time."""

_BUFFER_NBYTES: Final = 2**19
"""Bytes that are written at a time."""

_RECORDED_EVERY_S: Final = 1.0
"""What is asked for again after a kill is what came in so many seconds."""

_TOLD_EVERY_S: Final = 0.1
_LEFT_AFTER_S: Final = 2.0
"""Seconds for which threads are waited for that a silent server keeps; they write nothing any more."""


class Arrival:
    """A file on its way."""

    def __init__(self, name: str, source: RemoteSource, staging: Staging) -> None:
        self.name = name
        self.source = source
        self._staging = staging
        self._turn = threading.Lock()
        self._file: PartialFile | None = None
        self.missing = without([ByteRange(0, source.nbytes)], staging.spans_of(name))
        if self.missing and not source.opening.serves_ranges:
            self.missing = [ByteRange(0, source.nbytes)]
        self._n_missing = sum(map(len, self.missing))

    def begin(self) -> int:
        """Make the file, so that a full disk shows early, and write what came with the first answer."""
        head = ByteRange(0, len(memoryview(self.source.opening.head)))
        new = without([head], without([head], self.missing))
        with closing(self._staging.make(self.name)) as file:
            for span in new:
                file.write(span.start, memoryview(self.source.opening.head)[span.start : span.stop])
                self._staging.record(self.name, span, file)
        self.missing = without(self.missing, new)
        self._n_missing = sum(map(len, self.missing))
        return sum(map(len, new))

    def opened(self) -> PartialFile:
        """Return the file, which is opened when its first part comes."""
        with self._turn:
            if self._file is None:
                self._file = self._staging.make(self.name)
            return self._file

    def has_come(self, span: ByteRange) -> bool:
        """Record bytes, each once, and say whether all are there now."""
        self._staging.record(self.name, span, self.opened())
        with self._turn:
            self._n_missing -= len(span)
            return self._n_missing == 0

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            if self._file is not None:
                self._file.close()


def download(
    arrivals: Sequence[Arrival], meter: ProgressMeter, on_arrived: Callable[[Arrival], None], *, n_threads: int
) -> None:
    """Bring all that is missing of some files."""
    for arrival in arrivals:
        meter.add(arrival.begin())
    for arrival in arrivals:
        if not arrival.missing:
            on_arrived(arrival)
    total = sum(len(span) for arrival in arrivals for span in arrival.missing)
    part_nbytes = max(_PARTS_NBYTES[0], min(_PARTS_NBYTES[1], total // (n_threads * _PARTS_OF_EACH)))
    tasks = list(_tasks(arrivals, part_nbytes))
    _Crew(tasks, meter, on_arrived).run(min(n_threads, len(tasks)))


def _tasks(arrivals: Sequence[Arrival], part_nbytes: int) -> Iterator[tuple[Arrival, ByteRange]]:
    for arrival in arrivals:
        if arrival.source.opening.serves_ranges:
            yield from ((arrival, span) for span in cut(arrival.missing, part_nbytes))
        elif arrival.missing:
            yield arrival, ByteRange(0, arrival.source.nbytes)


class _StoppedError(Exception):
    """Another thread failed, or the caller was interrupted."""


class _Crew:
    """Threads that share the work. They are daemons: one that waits for a silent server must not keep the process."""

    def __init__(
        self, tasks: list[tuple[Arrival, ByteRange]], meter: ProgressMeter, on_arrived: Callable[[Arrival], None]
    ) -> None:
        self._tasks = iter(tasks)
        self._meter = meter
        self._on_arrived = on_arrived
        self._turn = threading.Lock()
        self._is_stopped = False
        self._failures: list[BaseException] = []

    def run(self, n_threads: int) -> None:
        """Do all of it."""
        threads = [
            threading.Thread(target=self._work, name="tensorkeep-fetch", daemon=True) for _ in range(n_threads)
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive() and not self._is_stopped:
                    thread.join(_TOLD_EVERY_S)
        finally:
            self._is_stopped = True
            deadline = time.monotonic() + _LEFT_AFTER_S
            for thread in threads:
                if thread.ident is not None:
                    thread.join(max(0.0, deadline - time.monotonic()))
        if self._failures:
            try:
                raise self._failures[0]
            finally:
                self._failures.clear()  # this frame is held by the error, which it must not hold

    def _work(self) -> None:
        buffer = memoryview(bytearray(_BUFFER_NBYTES))
        try:
            while not self._is_stopped:
                with self._turn:
                    task = next(self._tasks, None)
                if task is None:
                    return
                self._bring(*task, buffer)
        except _StoppedError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self._failures.append(error)
            self._is_stopped = True

    def _bring(self, arrival: Arrival, span: ByteRange, buffer: memoryview) -> None:
        file = arrival.opened()
        is_ranged = arrival.source.opening.serves_ranges
        recorded = told = span.start
        recorded_at = told_at = time.monotonic()

        def write(offset: int, data: memoryview) -> None:
            nonlocal recorded, told, recorded_at, told_at
            self._check()
            file.write(offset, data)
            now, end = time.monotonic(), offset + len(data)
            if end > told and now - told_at >= _TOLD_EVERY_S:
                self._meter.add(end - told)
                told, told_at = end, now
            if is_ranged and end < span.stop and now - recorded_at >= _RECORDED_EVERY_S:
                arrival.has_come(ByteRange(recorded, end))
                recorded, recorded_at = end, now

        arrival.source.copy_to(span, buffer, write)
        self._check()
        self._meter.add(span.stop - told)
        if arrival.has_come(ByteRange(recorded, span.stop)):
            arrival.close()
            self._on_arrived(arrival)

    def _check(self) -> None:
        if self._is_stopped:
            raise _StoppedError
