"""Bytes of tensors in one order, which a device copies ahead of their use.

They are for files that only one thread can write: encrypted ones, those whose blocks are hashed, and those that are
sent to a store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from tensorkeep.arrays import Fetched, HostBuffer, Mark, OnDevice
from tensorkeep.buffers import Buffer
from tensorkeep.tensors.from_device._plan import plan_in_order

_BUFFER_NBYTES: Final = 4 * 2**20
"""Bytes that are copied at once: long enough for the device to copy at full speed."""

_N_AHEAD: Final = 3
"""Buffers that are being filled while one is used."""


def fetch_in_order(tensors: Iterable[tuple[int, int, OnDevice]]) -> Iterator[Iterator[Buffer]]:
    """Give the bytes of each tensor, given with its number and bytes; take all of one before asking for the next.

    They are valid for as long as the caller holds them: no buffer is filled twice.
    """
    for _, group in groupby(tensors, lambda each: each[2].memory.name):
        of_device = list(group)
        views = _views(of_device)
        for _, nbytes, _ in of_device:
            yield _first(nbytes, views)


def _first(nbytes: int, views: Iterator[memoryview]) -> Iterator[Buffer]:
    while nbytes:
        view = next(views)
        nbytes -= len(view)
        yield view


def _views(tensors: Sequence[tuple[int, int, OnDevice]]) -> Iterator[memoryview]:
    """Give the parts of tensors of one device, which fills the next buffers meanwhile."""
    memory = tensors[0][2].memory
    copies = memory.start_fetching([tensor.order for _, _, tensor in tensors], _BUFFER_NBYTES)
    begun: deque[tuple[list[Fetched], HostBuffer, Mark]] = deque()
    try:
        for parts in plan_in_order(tensors, _BUFFER_NBYTES):
            buffer = memory.host_buffer(parts[-1].stop)
            begun.append((parts, buffer, copies.fetch(parts, buffer)))
            if len(begun) > _N_AHEAD:
                yield from _complete(*begun.popleft())
        while begun:
            yield from _complete(*begun.popleft())
    finally:
        copies.end()


def _complete(parts: list[Fetched], buffer: HostBuffer, mark: Mark) -> Iterator[memoryview]:
    mark.wait()
    return (buffer.data[each.start : each.stop] for each in parts)
