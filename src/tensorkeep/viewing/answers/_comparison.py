"""Two checkpoints, tensor by tensor: which differ, and how far one has moved from the other."""

from __future__ import annotations

import os
from contextlib import suppress
from time import perf_counter
from typing import Any, Final, Literal

import msgspec

from tensorkeep.checkpoint import DataDiff, diff, have_equal_bytes
from tensorkeep.dtypes import BY_NAME
from tensorkeep.errors import TensorNotFoundError
from tensorkeep.kinds import Opened
from tensorkeep.parallel import ProgressMeter, batches_of, parallel_map
from tensorkeep.tensors import LazyTensor
from tensorkeep.viewing._json import number
from tensorkeep.viewing._work import Outbox
from tensorkeep.viewing.answers._pairs import Change, change_of

_MAX_THREADS: Final = 4

_MAX_TEXTS: Final = 10_000
"""Values besides tensors that are listed."""

Status = Literal["equal", "differs", "dtype", "shape", "bits", "unread"]
"""`dtype`: another one, but the numbers are compared; `bits`: only payloads of NaNs or signs of zeros differ;
`unread`: the dtype has no numbers."""

_Row = tuple[int, int, Status, Any, Any, Any, Any, Any]


class Comparison:
    """Two open checkpoints.

    Attributes:
        a: The first.
        b: The second.
        places_a: Name to place in the first.
        places_b: Name to place in the second.
    """

    def __init__(self, a: Opened, b: Opened, places_a: dict[str, int], places_b: dict[str, int]) -> None:
        self.a = a
        self.b = b
        self.places_a = places_a
        self.places_b = places_b

    def run(self, outbox: Outbox) -> dict[str, Any]:
        """Compare them, with a row for each tensor that both have."""
        begin = perf_counter()
        nbytes = {name: self.a[name].nbytes for name in self.places_a if name in self.places_b}
        meter = ProgressMeter(outbox.progress, sum(nbytes.values()))
        batches = batches_of(nbytes, nbytes.__getitem__)

        def compare(batch: list[str]) -> int:
            n_equal = 0
            for name in batch:
                row = self._row(name, meter)
                n_equal += row[2] == "equal"
                outbox.add(row)
            return n_equal

        n_threads = min(_MAX_THREADS, os.cpu_count() or 1, len(batches))
        n_equal = sum(parallel_map(compare, batches, n_threads=n_threads, meter=meter))
        return {
            "only_in_a": [t for name, t in self.places_a.items() if name not in self.places_b],
            "only_in_b": [t for name, t in self.places_b.items() if name not in self.places_a],
            "n_equal": n_equal,
            "n_different": len(nbytes) - n_equal,
            "data": _texts(self._other_data()),
            "ties": _texts(self._ties()),
            "seconds": perf_counter() - begin,
        }

    def _other_data(self) -> tuple[DataDiff, ...]:
        """Return how they differ besides tensors."""
        names = self.places_a.keys() | self.places_b.keys()
        with suppress(TensorNotFoundError):  # there is nothing else
            return diff(self.a, self.b, only=lambda path: path not in names).data
        return ()

    def _ties(self) -> tuple[DataDiff, ...]:
        """Return which tensors share memory with other ones."""
        return diff(self.a, self.b, values=False).ties if self.a.aliases or self.b.aliases else ()

    def _row(self, name: str, meter: ProgressMeter) -> _Row:
        status, change = _compared(self.a[name], self.b[name], meter)
        places = self.places_a[name], self.places_b[name]
        if change is None:
            return *places, status, None, None, None, None, None
        numbers = map(number, (change.norm, change.relative, change.max_abs, change.n_different, change.norm_a))
        norm, relative, max_abs, n_different, norm_a = numbers
        return *places, status, norm, relative, max_abs, n_different, norm_a


def _compared(a: LazyTensor, b: LazyTensor, meter: ProgressMeter) -> tuple[Status, Change | None]:
    """Say how two tensors of a name differ."""
    if a.shape != b.shape:
        meter.add(a.nbytes)
        return "shape", None
    if a.dtype == b.dtype and (_is_promised_equal(a, b) or _have_equal_bytes(a, b, meter)):
        meter.add(a.nbytes)
        return "equal", None
    if not all(each.dtype in BY_NAME or each.is_quantized for each in (a, b)):
        meter.add(a.nbytes)
        return "unread", None
    change = change_of(a, b, meter)
    return "dtype" if a.dtype != b.dtype else "differs" if change.n_different else "bits", change


def _is_promised_equal(a: LazyTensor, b: LazyTensor) -> bool:
    digest = a.digest
    return digest is not None and digest == b.digest


def _have_equal_bytes(a: LazyTensor, b: LazyTensor, meter: ProgressMeter) -> bool:
    """Say whether all bytes are equal; only then do they count as done."""
    return a.nbytes == b.nbytes and have_equal_bytes(a, b, lambda _: meter.add(0))


def _texts(found: tuple[DataDiff, ...]) -> list[Any]:
    return [msgspec.to_builtins(each) for each in found[:_MAX_TEXTS]]
