"""Downloads many ranges at once and writes each to its place in the file as it arrives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final

from tensorkeep.fetching._spans import cut, without
from tensorkeep.fetching._staging import Staging
from tensorkeep.parallel import ProgressMeter, try_to_start
from tensorkeep.transport import ByteRange, PartialFile, RemoteSource

_PARTS_NBYTES: Final = (2**22, 2**25)
"""Smallest and largest request, in bytes."""

_PARTS_OF_EACH: Final = 4
"""Fewest requests for each thread, if there is enough to do, so that all threads end at about the same time."""

BUFFER_NBYTES: Final = 2**19
"""Bytes per write."""

_RECORDED_EVERY_S: Final = 1.0
"""Seconds between records in the journal: a kill loses at most what arrived since the last one."""

_REPORTED_EVERY_S: Final = 0.1
_ABANDONED_AFTER_S: Final = 2.0
"""Seconds to wait for threads that hang on a silent server; once stopped, they write nothing more."""


class Arrival:
    """A file that is being downloaded."""

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

    @property
    def path(self) -> str:
        """Where it arrives."""
        return self._staging.path_of(self.name)

    def begin(self) -> int:
        """Create the file at its full size, so that a full disk shows early, and write the first response's bytes."""
        head = ByteRange(0, len(memoryview(self.source.opening.head)))
        is_used = self.source.opening.serves_ranges or head.stop == self.source.nbytes  # else it is all sent again
        new = without([head], without([head], self.missing)) if is_used else []
        with closing(self._staging.make(self.name)) as file:
            for span in new:
                file.write(span.start, memoryview(self.source.opening.head)[span.start : span.stop])
                self._staging.record(self.name, span, file)
        self.missing = without(self.missing, new)
        self._n_missing = sum(map(len, self.missing))
        return sum(map(len, new))

    def opened(self) -> PartialFile:
        """Return the file; it is opened when its first part arrives."""
        with self._turn:
            if self._file is None:
                self._file = self._staging.make(self.name)
            return self._file

    def record(self, span: ByteRange) -> bool:
        """Record bytes, each once, and say whether the file is complete."""
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
    """Download everything that is missing from some files; `on_arrived` runs in a worker thread."""
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
    """Threads that share the work. They are daemons: one that hangs on a silent server must not keep the process."""

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
        """Download everything; raise the first failure."""
        threads = [
            threading.Thread(target=self._work, name="tensorkeep-fetch", daemon=True) for _ in range(n_threads)
        ]
        try:
            started = [thread for thread in threads if try_to_start(thread)]
            if not started:
                self._work()
            for thread in started:
                while thread.is_alive() and not self._is_stopped:
                    thread.join(_REPORTED_EVERY_S)
        finally:
            self._is_stopped = True
            deadline = time.monotonic() + _ABANDONED_AFTER_S
            for thread in threads:
                if thread.ident is not None:
                    thread.join(max(0.0, deadline - time.monotonic()))
        if self._failures:
            try:
                raise self._failures[0]
            finally:
                self._failures.clear()  # the error's traceback refers to this frame: break the cycle

    def _work(self) -> None:
        buffer = memoryview(bytearray(BUFFER_NBYTES))
        try:
            while not self._is_stopped:
                with self._turn:
                    task = next(self._tasks, None)
                if task is None:
                    return
                self._download(*task, buffer)
        except _StoppedError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self._failures.append(error)
            self._is_stopped = True

    def _download(self, arrival: Arrival, span: ByteRange, buffer: memoryview) -> None:
        file = arrival.opened()
        is_ranged = arrival.source.opening.serves_ranges
        recorded = reported = span.start
        recorded_at = reported_at = time.monotonic()

        def write(offset: int, data: memoryview) -> None:
            nonlocal recorded, reported, recorded_at, reported_at
            self._check()
            file.write(offset, data)
            now, end = time.monotonic(), offset + len(data)
            if end > reported and now - reported_at >= _REPORTED_EVERY_S:
                self._meter.add(end - reported)
                reported, reported_at = end, now
            if is_ranged and end < span.stop and now - recorded_at >= _RECORDED_EVERY_S:
                arrival.record(ByteRange(recorded, end))
                recorded, recorded_at = end, now

        arrival.source.copy_to(span, buffer, write)
        self._check()
        self._meter.add(span.stop - reported)
        if arrival.record(ByteRange(recorded, span.stop)):
            arrival.close()
            self._on_arrived(arrival)

    def _check(self) -> None:
        if self._is_stopped:
            raise _StoppedError
