"""Downloads by the workers of an executor: each writes its ranges into the files that this process has made."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

import msgspec

from tensorkeep.errors import SourceMissingError
from tensorkeep.executors import run_in, task_nbytes
from tensorkeep.fetching._download import BUFFER_NBYTES, Arrival
from tensorkeep.fetching._spans import cut
from tensorkeep.parallel import ProgressMeter
from tensorkeep.transport import ByteRange, PartialFile, RemoteSource

if TYPE_CHECKING:
    from concurrent.futures import Executor

_MOST_NBYTES: Final = 2**28
"""Most bytes of a task; each asks the server for the file once more."""


class FetchTask(msgspec.Struct, frozen=True):
    """A range of a file to download.

    Attributes:
        source: The file on the server, in one version.
        name: Its name among the files of the fetch.
        path: The file to write to, which has its final size.
        span: First byte, and the byte after the last.
        durable: Whether the disk must have it.
    """

    source: RemoteSource
    name: str
    path: str
    span: tuple[int, int]
    durable: bool


def download_by(
    executor: Executor,
    arrivals: Sequence[Arrival],
    meter: ProgressMeter,
    on_arrived: Callable[[Arrival], None],
    *,
    durable: bool,
) -> None:
    """Let workers download everything that is missing; what has come is recorded and checked here."""
    for arrival in arrivals:
        meter.add(arrival.begin())
    for arrival in arrivals:
        if not arrival.missing:
            on_arrived(arrival)
    by_name = {arrival.name: arrival for arrival in arrivals}

    def take(task: FetchTask, _: None) -> None:
        arrival, span = by_name[task.name], ByteRange(*task.span)
        meter.add(len(span))
        if arrival.record(span):
            arrival.close()
            on_arrived(arrival)

    run_in(executor, fetch_range, list(_tasks(arrivals, durable=durable)), take)


def _tasks(arrivals: Sequence[Arrival], *, durable: bool) -> Iterator[FetchTask]:
    nbytes = task_nbytes(sum(len(span) for arrival in arrivals for span in arrival.missing), _MOST_NBYTES)
    for arrival in arrivals:
        whole = [ByteRange(0, arrival.source.nbytes)] if arrival.missing else []
        spans = cut(arrival.missing, nbytes) if arrival.source.opening.serves_ranges else whole
        path = os.path.abspath(arrival.path)
        for span in spans:
            yield FetchTask(arrival.source, arrival.name, path, (span.start, span.stop), durable)


def fetch_range(task: FetchTask) -> None:
    """Download a range of a file; that is all a worker does for `fetch`."""
    if not os.path.isfile(task.path) or os.path.getsize(task.path) != task.source.nbytes:
        raise SourceMissingError(
            "a worker does not find the file that it was told to fill",
            path=task.path,
            hint="All workers must see the destination: a file system that they share",
        )
    buffer = memoryview(bytearray(BUFFER_NBYTES))
    with closing(PartialFile(task.path, task.source.nbytes)) as file:
        task.source.copy_to(ByteRange(*task.span), buffer, file.write)
        if task.durable:
            file.sync()
