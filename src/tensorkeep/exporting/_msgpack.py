"""Flax's files: nested dicts of arrays, as `flax.serialization.msgpack_restore` reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tensorkeep.arrays import TensorToWrite
from tensorkeep.buffers import Buffer
from tensorkeep.exporting._format import Content, ExportFormat, OutputFile, Plan
from tensorkeep.formats.msgpack import ARRAY_DTYPES, Elements, Emitted, emit_nested, name_problem
from tensorkeep.limits import MAX_NDIM


def _plan(content: Content, name: str) -> Plan:
    parts = emit_nested(Emitted(own, tensor.dtype, tensor.shape) for own, tensor in content.tensors.items())
    return Plan((OutputFile(name, lambda sink: sink.write(_buffers(parts, content))),))


def _buffers(parts: Iterator[bytes | Elements], content: Content) -> Iterator[Buffer]:
    streams: dict[str, _Stream] = {}
    for part in parts:
        if isinstance(part, bytes):
            yield part
            continue
        if part.name not in streams:
            streams = {part.name: _Stream(content.tensors[part.name])}
        yield from streams[part.name].take(part.nbytes)


class _Stream:
    """The elements of one tensor, handed out in parts."""

    def __init__(self, tensor: TensorToWrite) -> None:
        self._buffers = iter(tensor.buffers())
        self._rest = memoryview(b"")

    def take(self, nbytes: int | None) -> Iterator[Buffer]:
        """Yield the next so many bytes; None for all that are left."""
        while nbytes is not None and nbytes > len(self._rest):
            nbytes -= len(self._rest)
            yield self._rest
            self._rest = memoryview(next(self._buffers)).cast("B")
        yield self._rest[:nbytes]
        if nbytes is None:
            yield from self._buffers
        else:
            self._rest = self._rest[nbytes:]


MSGPACK: Final = ExportFormat(
    key="msgpack",
    what="a MessagePack file of Flax",
    suffixes=(".msgpack",),
    dtypes=ARRAY_DTYPES,
    plan=_plan,
    name_problem=name_problem,
    max_ndim=MAX_NDIM,
)
