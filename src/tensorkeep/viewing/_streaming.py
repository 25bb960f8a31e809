"""Streams long work to a browser: lines of JSON, until the result or an error."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tensorkeep.transport.system import give_back_freed_memory
from tensorkeep.viewing._cache import Cache
from tensorkeep.viewing._failures import BusyError, failure
from tensorkeep.viewing._json import encoded
from tensorkeep.viewing._work import Outbox, StoppedError, Work

if TYPE_CHECKING:
    from aiohttp import web

LINES: Final = "application/x-ndjson; charset=utf-8"

_N_WORKING: Final = 2
"""Works at a time; each may have threads of its own, and others wait."""

_MAX_STREAMS: Final = 16
"""Streams at a time, with those that wait."""

_TICK_S: Final = 0.1
"""Seconds between words about progress."""

_PATIENCE_S: Final = 60.0
"""Seconds in which a browser must take a line."""


class Streaming:
    """The long works of a viewer."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_N_WORKING, thread_name_prefix="tensorkeep-work")
        self._cache = Cache()
        self._outboxes: set[Outbox] = set()

    def stop(self) -> None:
        """Stop all work."""
        for outbox in self._outboxes:
            outbox.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def check_room(self) -> None:
        """Refuse one more stream where there are too many."""
        if len(self._outboxes) >= _MAX_STREAMS:
            raise BusyError("too much work at once", expected=f"at most {_MAX_STREAMS} streams", hint="Try again")

    async def stream(self, work: Work, response: web.StreamResponse) -> None:
        """Write what work says, and at last its result; if the browser goes away, this is cancelled, and the work."""
        known = None if work.key is None else self._cache.get(work.key)
        if known is not None:
            await _write(response, known)
            return
        with self._outbox() as outbox:
            running = asyncio.wrap_future(self._threads.submit(self._run, work, outbox))
            is_waiting = True
            while not running.done():
                await asyncio.wait({running}, timeout=_TICK_S)
                if is_waiting and not outbox.is_begun:
                    await _write(response, encoded({"waiting": True}))
                is_waiting = False
                for line in outbox.take():
                    await _write(response, encoded(line))
            await _write(response, running.result())

    @contextmanager
    def _outbox(self) -> Iterator[Outbox]:
        outbox = Outbox()
        self._outboxes.add(outbox)
        try:
            yield outbox
        finally:
            outbox.stop()
            self._outboxes.discard(outbox)

    def _run(self, work: Work, outbox: Outbox) -> bytes:
        """Do the work in this thread, and return the last line."""
        try:
            outbox.begin()
            line = encoded({"result": work.run(outbox)})
        except StoppedError:
            return b""
        except Exception as error:  # noqa: BLE001 - the page shows it
            return encoded(failure(error)[1])
        finally:
            give_back_freed_memory()  # a header of 100,000 tensors takes 100 MB while it is decoded
        if work.key is not None:
            self._cache.put(work.key, line)
        return line


async def _write(response: web.StreamResponse, line: bytes) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        await response.write(line + b"\n")
