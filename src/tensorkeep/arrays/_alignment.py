"""Arrays at addresses that a library can share: copied there, if they are elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays._base import DenseArrays
from tensorkeep.arrays.elements import aligned_block
from tensorkeep.buffers import Buffer
from tensorkeep.entries import TensorEntry
from tensorkeep.limits import ARENA_NBYTES, COPIED_BY_ONE_NBYTES
from tensorkeep.parallel import parallel_for_each

Array = npt.NDArray[Any]

_N_THREADS: Final = min(8, os.cpu_count() or 1)

_AT_LEAST_IN_RUN: Final = 4
"""Tensors in an average run; with fewer, moving them one by one takes less time."""


def aligned_views(
    numpy: DenseArrays, buffer: Buffer, entries: Mapping[str, TensorEntry], base: int, alignment: int
) -> dict[str, Array]:
    """Make arrays over a buffer, or over copies of parts of it, whose addresses are multiples of some bytes.

    Tensors that follow each other in the buffer, and are equally far from such addresses, are copied as one.
    """
    content = np.asarray(memoryview(buffer).cast("B"))
    phase = content.__array_interface__["data"][0] + base
    runs = list(_runs(entries, phase, alignment))
    if len(runs) * _AT_LEAST_IN_RUN > len(entries) > 1:
        return at_multiples_of(alignment, numpy.views(buffer, entries, base))
    arrays: dict[str, Array] = {}

    def make(run: dict[str, TensorEntry]) -> None:
        start, stop = next(iter(run.values())).data_offsets[0], next(reversed(run.values())).data_offsets[1]
        if (phase + start) % alignment == 0 or start == stop:
            arrays.update(numpy.views(buffer, run, base))
            return
        block = aligned_block(stop - start, alignment)
        np.copyto(block, content[base + start : base + stop])
        arrays.update(numpy.views(block.data, run, -start))

    n_threads = _N_THREADS if content.nbytes >= COPIED_BY_ONE_NBYTES else 1
    parallel_for_each(runs, make, n_threads=n_threads)
    return {name: arrays[name] for name in entries}


def _runs(entries: Mapping[str, TensorEntry], phase: int, alignment: int) -> Iterator[dict[str, TensorEntry]]:
    """Yield tensors that follow each other and are equally far from aligned addresses, up to the size of an arena."""
    run: dict[str, TensorEntry] = {}
    first = last = shift = 0
    for start, name in sorted(zip(map(_start, entries.values()), entries, strict=True), key=itemgetter(0)):
        entry = entries[name]
        if run and (
            start != last or (phase + start) % alignment != shift or entry.data_offsets[1] - first > ARENA_NBYTES
        ):
            yield run
            run = {}
        if not run:
            first, shift = start, (phase + start) % alignment
        run[name] = entry
        last = entry.data_offsets[1]
    if run:
        yield run


def _start(entry: TensorEntry) -> int:
    return entry.data_offsets[0]


def at_multiples_of(alignment: int, arrays: dict[str, Array]) -> dict[str, Array]:
    """Copy arrays whose addresses are not multiples of some bytes to where they are, into common blocks."""
    crooked = [
        (name, array)
        for name, array in arrays.items()
        if array.__array_interface__["data"][0] % alignment and array.nbytes
    ]
    moved = dict(arrays)
    groups = _groups(crooked)
    n_threads = _N_THREADS if sum(array.nbytes for _, array in crooked) >= COPIED_BY_ONE_NBYTES else 1
    parallel_for_each(groups, lambda group: _move(group, alignment, moved), n_threads=n_threads)
    return moved


def _groups(arrays: list[tuple[str, Array]]) -> list[list[tuple[str, Array]]]:
    groups: list[list[tuple[str, Array]]] = []
    room = 0
    for name, array in arrays:
        if not groups or array.nbytes > room:
            groups.append([])
            room = ARENA_NBYTES
        groups[-1].append((name, array))
        room -= array.nbytes
    return groups


def _move(group: list[tuple[str, Array]], alignment: int, moved: dict[str, Array]) -> None:
    sizes = [-(-array.nbytes // alignment) * alignment for _, array in group]
    block = aligned_block(sum(sizes), alignment)
    for (name, array), stop, size in zip(group, accumulate(sizes), sizes, strict=True):
        moved[name] = target = np.ndarray(array.shape, array.dtype, block.data, stop - size)
        np.copyto(target, array)
