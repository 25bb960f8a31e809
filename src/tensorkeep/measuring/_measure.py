"""Reads tensors in parts, in parallel, and counts their elements.

A part is read and counted run by run, so memory depends on the number of threads and not on sizes. Which parts a
tensor has does not depend on the number of threads, so the result does not either.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import DtypeError, LimitError, UnsupportedError
from tensorkeep.measuring._result import TensorStatistics
from tensorkeep.measuring._tallies import Facts, Tally, merged, tally_for
from tensorkeep.parallel import Progress, ProgressMeter, parallel_map
from tensorkeep.tensors import LazyTensor, load_together, numeric

_MAX_THREADS: Final = 4
"""Threads that read and count; each has up to 15 MB in memory."""

_SMALL_NBYTES: Final = 2**20
"""Bytes up to which tensors are read whole, with their neighbors."""

_TOGETHER_NBYTES: Final = 4 * 2**20
"""Bytes of neighbors that are read at once."""

_MAX_GROUP: Final = 512
"""Small tensors that are read at once."""

_RUN_NBYTES: Final = 4 * 2**20
"""Bytes of a large tensor that are read at once; on a server a request."""

_MAX_PARTS: Final = 16
"""Parts of a tensor; each keeps up to 512 kB of counts until the tensor is done."""

_PART_NBYTES: Final = 32 * 2**20
"""Least bytes of a part, so that most tensors are one."""


def measure(tensors: Mapping[str, LazyTensor], progress: Progress | None) -> dict[str, TensorStatistics]:
    """Return the statistics of tensors, in their order."""
    found: dict[str, TensorStatistics] = {}
    as_numbers = _Numbers()
    wanted: list[_Wanted] = []
    for name, lazy in tensors.items():
        facts = Facts(name, lazy.dtype, lazy.shape, lazy.n_elements)
        try:
            wanted.append(_Wanted(facts, as_numbers.of(lazy), found))
        except (DtypeError, UnsupportedError) as error:
            _give_up(facts, error, found)
    meter = ProgressMeter(progress, sum(each.lazy.nbytes for each in wanted))
    tasks = list(_tasks(wanted))
    n_threads = min(_MAX_THREADS, os.cpu_count() or 1, len(tasks))
    parallel_map(lambda task: task.run(meter), tasks, n_threads=n_threads, meter=meter)
    return {name: found[name] for name in tensors}


class _Numbers:
    """Lazy tensors as NumPy arrays of numbers, with one reader for all of a file."""

    def __init__(self) -> None:
        self._readers: dict[Any, Any] = {}

    def of(self, lazy: LazyTensor) -> LazyTensor:
        """Return a tensor that is read as a NumPy array, or refuse one of a dtype without numbers."""
        lazy = numeric(lazy)
        if lazy.reader not in self._readers:
            self._readers[lazy.reader] = lazy.reader.with_framework("numpy")
        return LazyTensor(lazy.name, lazy.entry, self._readers[lazy.reader])


class _Wanted:
    """A tensor whose parts are counted by any thread; the last one adds them up."""

    def __init__(self, facts: Facts, lazy: LazyTensor, found: dict[str, TensorStatistics]) -> None:
        self.facts = facts
        self.lazy = lazy
        self._found = found
        self._lock = threading.Lock()
        n = lazy.n_elements
        itemsize = ALL_BY_NAME[lazy.dtype].itemsize
        run = lazy.reader.run_length(lazy.entry)
        self.run_length = run * max(1, _RUN_NBYTES // (run * itemsize))
        n_runs = -(-n // self.run_length)
        n_parts = max(1, min(_MAX_PARTS, n * itemsize // _PART_NBYTES))
        step = max(1, -(-n_runs // n_parts)) * self.run_length
        self.parts = [range(start, min(start + step, n), self.run_length) for start in range(0, n, step)]
        self._tallies: list[Tally | None] = [None] * max(1, len(self.parts))

    @property
    def nbytes(self) -> int:
        """Bytes to read."""
        return self.lazy.nbytes

    def tally(self) -> Tally:
        """Return a new tally."""
        return tally_for(ALL_BY_NAME[self.lazy.dtype])

    def finish(self, part: int, tally: Tally) -> None:
        """Take the tally of a part."""
        with self._lock:
            self._tallies[part] = tally
            if all(each is not None for each in self._tallies):
                self._found[self.facts.name] = merged(self._tallies, self.facts)
                self._tallies.clear()

    def give_up(self, error: Exception) -> None:
        """Say why the tensor cannot be read."""
        _give_up(self.facts, error, self._found)


def _give_up(facts: Facts, error: Exception, found: dict[str, TensorStatistics]) -> None:
    found[facts.name] = TensorStatistics(**msgspec.structs.asdict(facts), problem=str(error))


class _Part(msgspec.Struct, frozen=True):
    """A part of a large tensor."""

    wanted: _Wanted
    place: int

    def run(self, meter: ProgressMeter) -> None:
        """Read and count it."""
        lazy, tally = self.wanted.lazy, self.wanted.tally()
        elements = self.wanted.parts[self.place]
        dtype = ALL_BY_NAME[lazy.dtype]
        try:
            for start in elements:
                stop = min(start + elements.step, elements.stop)
                tally.add(lazy.reader.read_run(lazy.name, lazy.entry, start, stop).reshape(-1))
                meter.add(dtype.nbytes(stop) - dtype.nbytes(start))
        except (DtypeError, LimitError, UnsupportedError) as error:
            self.wanted.give_up(error)
        else:
            self.wanted.finish(self.place, tally)


class _Group(msgspec.Struct, frozen=True):
    """Small tensors that are neighbors."""

    members: list[_Wanted]

    def run(self, meter: ProgressMeter) -> None:
        """Read and count them."""
        try:
            loaded = load_together({each.facts.name: each.lazy for each in self.members})
        except (DtypeError, LimitError, UnsupportedError) as error:
            if len(self.members) > 1:
                for each in self.members:
                    _Group([each]).run(meter)
            else:
                self.members[0].give_up(error)
            return
        for each in self.members:
            tally = each.tally()
            if each.lazy.n_elements:
                tally.add(loaded.pop(each.facts.name).reshape(-1))
            each.finish(0, tally)
        meter.add(sum(each.nbytes for each in self.members))


def _tasks(wanted: list[_Wanted]) -> Iterator[_Part | _Group]:
    """Divide the work, in the order of the tensors."""
    group: list[_Wanted] = []
    nbytes = 0
    for each in wanted:
        if each.nbytes > _SMALL_NBYTES:
            yield from (_Part(each, place) for place in range(len(each.parts)))
            continue
        group.append(each)
        nbytes += each.nbytes
        if nbytes >= _TOGETHER_NBYTES or len(group) == _MAX_GROUP:
            yield _Group(group)
            group, nbytes = [], 0
    if group:
        yield _Group(group)
