"""Which bytes of tensors on a device pass through a host buffer together, and in what order. Pure.

Small tensors share a buffer. A large one passes through several, one after another, since a digest needs its bytes in
order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from tensorkeep.arrays import Fetched, OnDevice

_PACKED_NBYTES: Final = 2**18
"""Bytes of a tensor up to which it shares a buffer with others: copying it alone takes longer to start than to do."""

Task: TypeAlias = list[list[Fetched]]
"""What passes through one buffer after another, by one thread."""


def plan_fetches(tensors: Iterable[tuple[int, int, OnDevice]], buffer_nbytes: int) -> Iterator[Task]:
    """Plan to fetch tensors, given with their numbers and bytes, through buffers of a size."""
    packed: list[Fetched] = []
    for number, nbytes, tensor in tensors:
        if nbytes > min(_PACKED_NBYTES, buffer_nbytes):
            yield list(plan_in_order([(number, nbytes, tensor)], buffer_nbytes))
            continue
        start = packed[-1].stop if packed else 0
        if start + nbytes > buffer_nbytes:
            yield [packed]
            packed, start = [], 0
        packed += (Fetched(number, 0, start, start + nbytes, part) for nbytes, part in tensor.parts(buffer_nbytes))
    if packed:
        yield [packed]


def plan_in_order(tensors: Iterable[tuple[int, int, OnDevice]], buffer_nbytes: int) -> Iterator[list[Fetched]]:
    """Plan to fetch all bytes of tensors one after another; small parts share a buffer."""
    together: list[Fetched] = []
    for number, _, tensor in tensors:
        offset = 0
        for nbytes, part in tensor.parts(buffer_nbytes):
            start = together[-1].stop if together else 0
            if start + nbytes > buffer_nbytes:
                yield together
                together, start = [], 0
            together.append(Fetched(number, offset, start, start + nbytes, part))
            offset += nbytes
    if together:
        yield together
