"""The bytes of one range, brought whole by as many requests as it takes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Final

from tensorkeep.errors import TransientError
from tensorkeep.transport.remote.objects._base import RemoteObject, Stream, Version, gone_is_changed
from tensorkeep.transport.remote.objects._retries import Patience
from tensorkeep.transport.sources import ByteRange

PROGRESS_NBYTES: Final = 2**16
"""Bytes that an attempt must bring to count as a success; with less, a large file would never end."""


def copy_range(
    remote: RemoteObject,
    version: Version,
    span: ByteRange,
    buffer: memoryview,
    write: Callable[[int, memoryview], None],
    *,
    patience: Patience,
    goes_on: bool = True,
    turn: AbstractContextManager[object] | None = None,
) -> None:
    """Hand over the bytes of a range as they come; go on where an answer was cut off."""

    def ask(start: int) -> Stream:
        with gone_is_changed(remote.name, version):
            return remote.stream(ByteRange(start, span.stop), version)

    def more(stream: Stream, into: memoryview) -> int:
        with gone_is_changed(remote.name, version):
            return stream.read_into(into)

    start = span.start
    while start < span.stop:
        before = start
        error = TransientError("the answer ended early", path=remote.name)
        try:
            with turn or nullcontext(), closing(ask(start)) as stream:
                while start < span.stop and (n_read := more(stream, buffer[: span.stop - start])):
                    write(start, buffer[:n_read])
                    start += n_read
        except TransientError as cause:
            error = cause
        if start < span.stop:
            if not goes_on:
                start = span.start
            elif start - before >= PROGRESS_NBYTES:
                patience.restore()
            patience.lose(error)
