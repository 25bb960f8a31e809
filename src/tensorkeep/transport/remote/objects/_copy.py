"""Copies one range completely, in as many requests as it takes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Final

from tensorkeep.errors import TransientError
from tensorkeep.transport.remote.objects._base import RemoteObject, Stream, Version, gone_is_changed
from tensorkeep.transport.remote.objects._retries import Patience
from tensorkeep.transport.sources import ByteRange

PROGRESS_NBYTES: Final = 2**16
"""Bytes an attempt must bring to reset the count of failures, so that a large file can outlast many of them."""


def copy_range(
    remote: RemoteObject,
    version: Version,
    span: ByteRange,
    buffer: memoryview,
    write: Callable[[int, memoryview], None],
    *,
    patience: Patience,
    continues: bool = True,
    turn: AbstractContextManager[object] | None = None,
) -> None:
    """Pass on the bytes of a range as they come, and continue where a response was cut off."""

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
            if not continues:
                start = span.start
            elif start - before >= PROGRESS_NBYTES:
                patience.reset()
            patience.fail(error)
