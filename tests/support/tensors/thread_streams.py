"""Streams for the CPU of which each thread has its own current one, and whose work is done when somebody needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_current = threading.local()


class _Event:
    def synchronize(self) -> None:
        pass


class Stream:
    """Work that is begun, and done at the latest when other work must follow it."""

    def __init__(self, device: Any = None) -> None:
        self._begun: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def begin(self, work: Callable[[], object]) -> None:
        """Let the device do some work, some time later."""
        self._begun.append(work)

    def synchronize(self) -> None:
        """Do what was begun."""
        with self._lock:
            while self._begun:
                self._begun.pop(0)()

    def wait_stream(self, stream: Stream) -> None:
        stream.synchronize()

    def record_event(self) -> _Event:
        self.synchronize()
        return _Event()


DEFAULT = Stream()


class ThreadStreams:
    """What torch's modules of streams have."""

    Stream = Stream

    @staticmethod
    def current_stream(_: Any = None) -> Stream:
        stream: Stream = getattr(_current, "stream", DEFAULT)
        return stream

    @staticmethod
    @contextmanager
    def stream(stream: Stream) -> Iterator[None]:
        """Work in a stream, after all that was begun there."""
        before = ThreadStreams.current_stream()
        stream.synchronize()
        _current.stream = stream
        try:
            yield
        finally:
            _current.stream = before
