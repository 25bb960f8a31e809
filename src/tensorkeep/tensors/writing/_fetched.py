"""Tensors of devices, written and hashed while the devices copy the next ones: by several threads, or by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from tensorkeep.arrays import Fetched, OnDevice, StreamedTensor, TensorToWrite
from tensorkeep.digests import digest_of, new_hasher
from tensorkeep.tensors.from_device import fetch_each, fetch_in_order
from tensorkeep.tensors.writing._checked import checked_buffers
from tensorkeep.transport import ExtensibleSink

if TYPE_CHECKING:
    from blake3 import blake3


_Named: TypeAlias = tuple[str, TensorToWrite]


def write_fetched(sink: ExtensibleSink, named: Sequence[_Named], *, hashes: bool) -> list[bytes]:
    """Append tensors, on devices or small ones on the CPU, and return their digests if asked for."""
    tensors = [tensor for _, tensor in named]
    stops = list(accumulate(tensor.nbytes for tensor in tensors))
    starts = [0, *stops]
    extension = sink.extend(stops[-1])
    digests = FetchedDigests([tensor.nbytes for tensor in tensors])
    for number, (name, tensor) in enumerate(named):
        if place_on_device(tensor) is None:
            content = b"".join(checked_buffers(name, tensor))
            if content:
                extension.write(starts[number], memoryview(content))
            digests.made[number] = digest_of(content) if hashes else b""

    def take(parts: Sequence[Fetched], data: memoryview) -> None:
        # Parts that are adjacent in the buffer and in the file are written together
        for shift, group in groupby(parts, lambda each: starts[each.tensor] + each.offset - each.start):
            run = list(group)
            extension.write(shift + run[0].start, data[run[0].start : run[-1].stop])
        if hashes:
            for each in parts:
                digests.add(each.tensor, data[each.start : each.stop])

    fetch_each(_numbered(tensors), take)
    return digests.made


def copied_ahead(tensors: Iterable[_Named]) -> Iterator[_Named]:
    """Pass on tensors. The bytes of each on a device can be read once, before the next tensor is asked for."""
    named = list(tensors)
    fetched = fetch_in_order(_numbered([tensor for _, tensor in named]))
    for name, tensor in named:
        if place_on_device(tensor) is None:
            yield name, tensor
        else:
            yield name, msgspec.structs.replace(tensor, stream=partial(iter, next(fetched)))


def place_on_device(tensor: TensorToWrite) -> OnDevice | None:
    """Return where a tensor is, if it is on a device that copies in the background."""
    return tensor.on_device if isinstance(tensor, StreamedTensor) else None


def _numbered(tensors: Sequence[TensorToWrite]) -> Iterator[tuple[int, int, OnDevice]]:
    for number, tensor in enumerate(tensors):
        place = place_on_device(tensor)
        if place is not None:
            yield number, tensor.nbytes, place


class FetchedDigests:
    """Digests of tensors whose bytes arrive in order, each tensor by one thread.

    Attributes:
        made: The digests, once all bytes are there.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._left = list(sizes)
        self._hashers: dict[int, blake3] = {}
        self.made = [b""] * len(sizes)

    def add(self, tensor: int, data: memoryview) -> None:
        """Take the next bytes of a tensor."""
        if len(data) == self._left[tensor] and tensor not in self._hashers:
            self.made[tensor] = digest_of(data)
            return
        hasher = self._hashers.get(tensor) or self._hashers.setdefault(tensor, new_hasher())
        hasher.update(data)
        self._left[tensor] -= len(data)
        if not self._left[tensor]:
            self.made[tensor] = self._hashers.pop(tensor).digest()
