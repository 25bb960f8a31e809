"""Every rank's part of a tensor, written while the whole passes once: its digest is computed on the way.

A `FillTask` says everything in plain values, so that a thread, a process or another machine can carry it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod

import msgspec
import numpy as np

from tensorkeep.checkpoint import Place, ReservedFiles
from tensorkeep.digests import new_hasher
from tensorkeep.errors import IntegrityError, SourceChangedError
from tensorkeep.tensors import LazyTensor, refuse_other_bytes
from tensorkeep.transport import ReservedFile

_Span = tuple[int, int]


class PartToFill(msgspec.Struct, frozen=True):
    """Where a rank's part of a tensor goes.

    Attributes:
        place: The file, and the first byte there.
        spans: The bytes of each row that belong to the part, in order.
    """

    place: Place
    spans: tuple[_Span, ...]


class TensorToFill(msgspec.Struct, frozen=True):
    """A tensor as rows of bytes; a rank gets the same columns of each row.

    Attributes:
        name: Its name in the source.
        dtype: Its dtype by the name in the format.
        shape: Elements along each dimension.
        row_nbytes: Bytes of a row: of the divided dimension and all after it. All bytes, if nothing is divided.
        parts: Each rank's part, in order.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    row_nbytes: int
    parts: tuple[PartToFill, ...]


class Filled(msgspec.Struct, frozen=True):
    """The digests of a tensor and of its parts.

    Attributes:
        name: Its name in the source.
        whole: BLAKE3 of all bytes.
        parts: BLAKE3 of each rank's part, in order.
    """

    name: str
    whole: bytes
    parts: tuple[bytes, ...]


def spans_in_row(ranges: Iterable[tuple[int, int]], shape: tuple[int, ...], dim: int, bits: int) -> tuple[_Span, ...]:
    """Return ranges of a dimension as bytes of a row."""
    inner = prod(shape[dim + 1 :]) * bits
    return tuple((begin * inner // 8, end * inner // 8) for begin, end in ranges)


def fill(
    lazy: LazyTensor,
    wanted: TensorToFill,
    files: ReservedFiles,
    on_bytes: Callable[[int], None],
    digest: bytes | None = None,
) -> Filled:
    """Write the parts of one tensor, and return the digests; refuse bytes that are not those that were saved.

    `digest` is the one that it had when this was planned.
    """
    if (lazy.dtype, lazy.shape) != (wanted.dtype, wanted.shape) or digest not in {None, lazy.digest}:
        raise SourceChangedError("the checkpoint was saved again while it was being read", hint="Start again")
    hasher = new_hasher()
    parts = _parts(wanted.parts)
    done = 0
    tensor = lazy.tensor_to_write()
    for buffer in tensor.buffers():
        view = memoryview(buffer).cast("B")
        hasher.update(view)
        for part, piece in _divided(view, done % wanted.row_nbytes if wanted.row_nbytes else 0, wanted, parts):
            part.write(piece, files)
        done += len(view)
        on_bytes(len(view))
    whole = hasher.digest()
    if done != lazy.nbytes or (lazy.digest is not None and whole != lazy.digest):
        raise IntegrityError(
            f"the bytes of tensor `{wanted.name}` are not those that were saved",
            tensor=wanted.name,
            expected=f"{lazy.nbytes:,} bytes" if done != lazy.nbytes else f"BLAKE3 {(lazy.digest or b'').hex()}",
            found=f"{done:,}" if done != lazy.nbytes else f"BLAKE3 {whole.hex()}",
            hint="Get the file again; `tensorkeep verify` lists all damage",
        )
    refuse_other_bytes([(wanted.name, tensor)], [whole])
    return Filled(wanted.name, whole, tuple(part.digest() for part in parts))


class _Part:
    """One part on its way into its file; replicas are hashed once."""

    def __init__(self, to_fill: PartToFill, like: _Part | None) -> None:
        self.spans = to_fill.spans
        self._place = to_fill.place
        self._hasher = new_hasher() if like is None else None
        self._like = like
        self._done = 0

    def write(self, piece: memoryview, files: ReservedFiles) -> None:
        file: ReservedFile
        with files.using(self._place.file) as file:
            file.write(self._place.start + self._done, piece)
        self._done += len(piece)
        if self._hasher is not None:
            self._hasher.update(piece)

    def digest(self) -> bytes:
        if self._hasher is not None:
            return self._hasher.digest()
        return self._like.digest() if self._like is not None else b""


def _parts(to_fill: Sequence[PartToFill]) -> list[_Part]:
    first: dict[tuple[_Span, ...], _Part] = {}
    parts: list[_Part] = []
    for each in to_fill:
        part = _Part(each, first.get(each.spans))
        first.setdefault(each.spans, part)
        parts.append(part)
    return parts


def _divided(
    view: memoryview, at: int, wanted: TensorToFill, parts: Sequence[_Part]
) -> Iterator[tuple[_Part, memoryview]]:
    """Give each part its bytes of a run that begins anywhere in a row: the row's rest, whole rows, a row's start."""
    row = wanted.row_nbytes
    head = min(-at % row, len(view)) if row else 0
    n_whole = (len(view) - head) // row if row else 0
    tail = head + n_whole * row
    if head:
        yield from _of_row(view[:head], at, parts)
    if n_whole == 1:
        yield from _of_row(view[head:tail], 0, parts)
    elif n_whole:
        rows = np.frombuffer(view[head:tail], np.uint8).reshape(n_whole, row)
        for part in parts:
            columns = [rows[:, begin:end] for begin, end in part.spans]
            chosen = np.concatenate(columns, axis=1) if len(columns) > 1 else np.ascontiguousarray(columns[0])
            yield part, chosen.data.cast("B")
    if tail < len(view):
        yield from _of_row(view[tail:], 0, parts)


def _of_row(view: memoryview, at: int, parts: Sequence[_Part]) -> Iterator[tuple[_Part, memoryview]]:
    """Give each part its bytes of a run inside one row."""
    for part in parts:
        for begin, end in part.spans:
            piece = view[max(begin - at, 0) : max(end - at, 0)]
            if len(piece):
                yield part, piece
