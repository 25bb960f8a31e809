"""A reader of a tensor through its differences from another: it patches what is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import DenseArrays, Extent, StreamedTensor, TensorToWrite, adapter_for
from tensorkeep.arrays.elements import elements_of, known_dtype, within_numpys_limits
from tensorkeep.buffers import Buffer
from tensorkeep.deltas.encoding import BLOCK_LENGTH, Delta, Words, word_of, words_at
from tensorkeep.deltas.reading import N_THREADS
from tensorkeep.digests import new_hasher
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import IntegrityError
from tensorkeep.parallel import Workers, parallel_for_each
from tensorkeep.tensors import Axis, LazyTensor, Planned, Selection, StoredInPieces, StoredTensor, take_block
from tensorkeep.tensors.readers import UnstoredReader, keep_freed_memory

if TYPE_CHECKING:
    from concurrent.futures import Future

Array = npt.NDArray[Any]

_N_AHEAD: Final = 3
"""Blocks that are made ahead of the one being written."""

_ROWS_LENGTH: Final = 2**23
"""Elements of the rows that are read at once to take a part of them."""


class PatchedReader(UnstoredReader, frozen=True, eq=False):
    """Reads one tensor.

    Attributes:
        base: The tensor that the first patch is for.
        deltas: The differences of each patch, in order.
        digest: BLAKE3 of the patched tensor, as the last patch says.
        target: Framework and device of the tensors that are read; the base's if None.
    """

    base: LazyTensor
    deltas: tuple[Delta, ...]
    digest: bytes
    target: tuple[str, Any] | None = None

    @property
    def path(self) -> str | None:
        """The file of the base, for messages."""
        return self.base.reader.path

    @property
    def adapter(self) -> DenseArrays:
        """The array library."""
        return self.base.reader.adapter if self.target is None else adapter_for(*self.target)

    def with_framework(self, framework: str, device: Any = "cpu") -> PatchedReader:
        """Return the same reader for another array library."""
        return msgspec.structs.replace(self, target=(framework, device))

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Read a part of the tensor."""
        with within_numpys_limits(name, entry.shape):
            elements = selection.apply(self._block(name, entry, selection))
        return self.adapter.from_elements(np.array(elements), known_dtype(name, entry))

    def plan(self, entry: TensorEntry, selection: Selection) -> Planned:  # noqa: ARG002 - the protocol's
        """Return what reading a part of the tensor would read of the base."""
        return self.base.reader.plan(self.base.entry, selection)

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Any:
        """Read a run of elements."""
        return self.adapter.from_elements(self._run(name, entry, start, stop), known_dtype(name, entry))

    def run_length(self, entry: TensorEntry) -> int:
        """Return how many elements each `read_run` should read: whole blocks."""
        return BLOCK_LENGTH if entry.known_dtype is None else BLOCK_LENGTH * 8 // max(entry.known_dtype.bits, 8)

    def load(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Read the whole tensor, and compare it with the digest that the last patch promises."""
        return {
            name: self.adapter.from_elements(
                self._elements(name, entry, self._whole(), entry.shape), known_dtype(name, entry)
            )
            for name, entry in entries.items()
        }

    def tensor_to_write(self, name: str, entry: TensorEntry, digest: bytes | None = None) -> TensorToWrite:  # noqa: ARG002 - the protocol's
        """Describe the tensor for writing; it is patched block by block."""
        described = self.base.tensor_to_write()
        return StreamedTensor(
            described.dtype, described.shape, described.nbytes, self._buffers, self._extent, digest=self.digest
        )

    def _extent(self) -> Extent | None:
        """Return where the base is, if it is in a file: names of one tensor stay so if they have the same patches."""
        described = self.base.tensor_to_write()
        extent = described.extent() if isinstance(described, StoredTensor | StoredInPieces) else None
        patches = "".join(f" and {id(delta.stored.source)} {delta.stored.name!r}" for delta in self.deltas)
        return extent and msgspec.structs.replace(extent, device=f"{extent.device}{patches}")

    @property
    def _word(self) -> np.dtype[Any]:
        return word_of(self.base.tensor_to_write().dtype)

    def _patched(self, start: int, stop: int) -> Words:
        """Return a run of words."""
        words = words_at(self.base, start, stop)
        for delta in self.deltas:
            delta.apply(words, start)
        return words

    def _whole(self) -> Words:
        word = self._word
        words: Words = np.empty(self.base.nbytes // word.itemsize, word)

        def fill(start: int) -> None:
            stop = min(start + BLOCK_LENGTH, len(words))
            words[start:stop] = self._patched(start, stop)

        parallel_for_each(range(0, len(words), BLOCK_LENGTH), fill, n_threads=N_THREADS)
        hasher = new_hasher(parallel=True)
        hasher.update(words.data.cast("B"))
        if hasher.digest() != self.digest:
            raise IntegrityError(
                f"tensor `{self.base.name}` does not have the digest that the patch records",
                tensor=self.base.name,
                expected=f"BLAKE3 {self.digest.hex()[:16]}…",
                found=f"{hasher.digest().hex()[:16]}…",
                hint="Either the tensor before the patch or the patch is damaged: `tensorkeep verify` says which",
            )
        return words

    def _buffers(self) -> Iterator[Buffer]:
        """Give the bytes of the tensor block by block; other threads make a few ahead."""
        keep_freed_memory()
        n_words = self.base.nbytes // self._word.itemsize
        waiting: deque[Future[Words]] = deque()
        workers = Workers(_N_AHEAD if n_words > BLOCK_LENGTH else 0, "tensorkeep-patch")
        try:
            for start in range(0, n_words, BLOCK_LENGTH):
                waiting.append(workers.submit(self._patched, start, min(start + BLOCK_LENGTH, n_words)))
                if len(waiting) > _N_AHEAD:
                    yield waiting.popleft().result().data.cast("B")
            while waiting:
                yield waiting.popleft().result().data.cast("B")
        finally:
            workers.shutdown(cancel=True)

    def _run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Array:
        """Return a run of elements; whole groups of packed ones."""
        dtype, itemsize = known_dtype(name, entry), self._word.itemsize
        words = self._patched(dtype.nbytes(start) // itemsize, dtype.nbytes(stop) // itemsize)
        return self._elements(name, entry, words, (stop - start,))

    def _elements(self, name: str, entry: TensorEntry, words: Words, shape: tuple[int, ...]) -> Array:
        stored = words.astype(words.dtype.newbyteorder("<"), copy=False)
        return elements_of(name, TensorEntry(entry.dtype, shape, (0, words.nbytes)), stored.data.cast("B"), 0)

    def _block(self, name: str, entry: TensorEntry, selection: Selection) -> Array:
        """Return the block of a selection, some rows at a time."""
        dtype, shape = known_dtype(name, entry), entry.shape
        if not shape:
            return self._run(name, entry, 0, 1).reshape(())
        block = np.empty(selection.block_shape, dtype.bits_name)
        if not block.size:
            return block
        rows, row_length, group = selection.axes[0], prod(shape[1:]), dtype.n_per_group
        spacing = abs(rows.step) if isinstance(rows, range) else 1
        n_rows = max(1, _ROWS_LENGTH // (row_length * spacing))
        for begin in range(0, len(rows), n_rows):
            part = rows[begin : begin + n_rows]
            first = int(min(part)) // group * group
            last = min(-(-(int(max(part)) + 1) // group) * group, shape[0])
            run = self._run(name, entry, first * row_length, last * row_length).reshape(last - first, *shape[1:])
            rest = selection.axes[1:]
            here = _moved(part, -first)
            block[begin : begin + n_rows] = take_block(run, Selection(run.shape, (here, *rest), ()))
        return block


def _moved(axis: Axis, by: int) -> Axis:
    return range(axis.start + by, axis.stop + by, axis.step) if isinstance(axis, range) else axis + by


def through(before: LazyTensor, deltas: tuple[Delta, ...], digest: str) -> LazyTensor:
    """Return a tensor as it is after some differences; when it is read whole or written, it must have the digest."""
    reader = before.reader
    if isinstance(reader, PatchedReader):
        patched = PatchedReader(reader.base, (*reader.deltas, *deltas), bytes.fromhex(digest), reader.target)
    else:
        patched = PatchedReader(before, deltas, bytes.fromhex(digest))
    return LazyTensor(
        before.name,
        TensorEntry(before.dtype, before.shape, (0, before.nbytes)),
        patched,
        patched.digest,
        library=before.library,
        marks=before.marks,
    )
