"""Compares the tensors that two checkpoints have under the same names: digests first, then bytes, then numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from math import prod
from typing import Final

import msgspec

from tensorkeep.checkpoint.diffing._changes import NumberDiff
from tensorkeep.checkpoint.diffing._numbers import compare_numbers, have_equal_bytes
from tensorkeep.errors import DtypeError, LimitError, UnsupportedError
from tensorkeep.kinds import Opened
from tensorkeep.parallel import Progress, ProgressMeter, batches_of, parallel_map
from tensorkeep.tensors import LazyTensor, numeric

_MAX_THREADS: Final = 4
"""Threads that compare tensors; memory bandwidth is the limit."""

Tensors = Mapping[str, LazyTensor]


class _Pair(msgspec.Struct, frozen=True):
    """A tensor that both checkpoints have.

    Attributes:
        a: The tensor in a.
        b: The tensor in b.
        is_promised_equal: Whether digests (for views: of what they view, at the same place) say that it is unchanged.
    """

    a: LazyTensor
    b: LazyTensor
    is_promised_equal: bool


class TensorDiff(msgspec.Struct, frozen=True):
    """A tensor that is in both checkpoints and differs.

    Attributes:
        name: Its name.
        dtype_a: Its dtype in a, such as `"BF16"`.
        dtype_b: Its dtype in b.
        shape_a: Its shape in a.
        shape_b: Its shape in b.
        is_bitwise_equal: Whether its bytes are the same although dtype or shape differ. Decided by digests and sizes
            alone; None if these do not tell.
        numbers: How its numbers differ; None if they were not compared, because shapes differ or this version does
            not know the dtype.
        problem: Why the tensor cannot be read, so that it may be equal; None if it was compared.
    """

    name: str
    dtype_a: str
    dtype_b: str
    shape_a: tuple[int, ...]
    shape_b: tuple[int, ...]
    is_bitwise_equal: bool | None = None
    numbers: NumberDiff | None = None
    problem: str | None = None

    @property
    def n_elements(self) -> int:
        """Number of elements of the tensor in a."""
        return prod(self.shape_a)

    @property
    def n_different(self) -> int | None:
        """Number of elements that differ as numbers (NaN equals NaN, 0 equals -0); None if not compared.

        0 if only dtypes, NaN payloads or the signs of zeros differ.
        """
        return None if self.numbers is None else self.numbers.n_different

    @property
    def max_abs(self) -> float | None:
        """Largest |a - b|; NaN if every differing pair contains a NaN; None if not compared."""
        return None if self.numbers is None else self.numbers.max_abs

    @property
    def max_rel(self) -> float | None:
        """Largest |a - b| / max(|a|, |b|); infinite if some |a - b| is; NaN and None as for `max_abs`."""
        return None if self.numbers is None else self.numbers.max_rel

    @property
    def n_nan_a(self) -> int | None:
        """Number of NaNs in a; None if not compared."""
        return None if self.numbers is None else self.numbers.n_nan_a

    @property
    def n_nan_b(self) -> int | None:
        """Number of NaNs in b; None if not compared."""
        return None if self.numbers is None else self.numbers.n_nan_b

    @property
    def n_inf_a(self) -> int | None:
        """Number of infinities in a; None if not compared."""
        return None if self.numbers is None else self.numbers.n_inf_a

    @property
    def n_inf_b(self) -> int | None:
        """Number of infinities in b; None if not compared."""
        return None if self.numbers is None else self.numbers.n_inf_b

    @property
    def norm(self) -> float | None:
        """Euclidean norm of b - a, without the elements where that is NaN or infinite; None if not compared."""
        return None if self.numbers is None else self.numbers.norm

    @property
    def relative(self) -> float | None:
        """The norm of b - a divided by the norm of a; infinite if only the latter is 0; None if not compared."""
        return None if self.numbers is None else self.numbers.relative


class Compared(msgspec.Struct, frozen=True):
    """A tensor that is in both checkpoints.

    Attributes:
        name: Its name.
        difference: How it differs; None if it does not.
        is_read: Whether it was read, rather than its digests alone.
    """

    name: str
    difference: TensorDiff | None
    is_read: bool


def compare_tensors(
    a: Tensors,
    b: Tensors,
    names: Collection[str],
    take: Callable[[Compared], object],
    progress: Progress | None,
    *,
    values: bool = True,
) -> None:
    """Compare the tensors of these names, and give each result to `take`: several threads do, in any order."""
    to_read = {}
    for name in names:
        pair = _pair(a, b, name)
        if values and _must_be_read(pair):
            to_read[name] = pair.a.nbytes
        else:
            take(Compared(name, _unread(pair), is_read=False))
    meter = ProgressMeter(progress, sum(to_read.values()))
    batches = batches_of(to_read, to_read.__getitem__)

    def compare(batch: list[str]) -> None:
        for name in batch:
            pair = _pair(a, b, name)
            try:
                difference = _read(pair.a, pair.b, meter)
            except (DtypeError, LimitError, UnsupportedError) as error:
                difference = _tensor_diff(pair.a, pair.b, None, problem=str(error))
            take(Compared(name, difference, is_read=True))

    n_threads = min(_MAX_THREADS, os.cpu_count() or 1, len(batches))
    parallel_map(compare, batches, n_threads=n_threads, meter=meter)


def _pair(a: Tensors, b: Tensors, name: str) -> _Pair:
    lazy_a, lazy_b = a[name], b[name]
    promise = _promise(a, name, lazy_a)
    return _Pair(lazy_a.renamed(name), lazy_b, promise is not None and promise == _promise(b, name, lazy_b))


def _promise(tensors: Tensors, name: str, lazy: LazyTensor) -> object:
    """Return a value that two tensors of the same shape share only if their elements are equal; None if unknown."""
    if lazy.digest is not None or not isinstance(tensors, Opened) or name not in tensors.aliases:
        return lazy.digest
    alias = tensors.aliases[name]
    digest = tensors.stored(alias.of).digest
    place = (alias.offset, alias.strides, alias.is_conj, alias.is_neg)
    return None if digest is None else (digest, lazy.dtype, lazy.shape, place)


def _must_be_read(pair: _Pair) -> bool:
    a, b = pair.a, pair.b
    if a.shape != b.shape:
        return False
    if a.dtype == b.dtype:
        return not pair.is_promised_equal
    return _both_numeric(a, b) is not None


def _both_numeric(a: LazyTensor, b: LazyTensor) -> tuple[LazyTensor, LazyTensor] | None:
    """Return two tensors of numbers; None if one has a dtype whose numbers are not known."""
    try:
        return _numeric(a), _numeric(b)
    except DtypeError:
        return None


def _numeric(lazy: LazyTensor) -> LazyTensor:
    return lazy if lazy.dtype == "C32" else numeric(lazy)  # NumPy lacks complex halves; they are compared as C64


def _have_equal_digests(a: LazyTensor, b: LazyTensor) -> bool:
    return a.digest is not None and a.digest == b.digest


def _unread(pair: _Pair) -> TensorDiff | None:
    """Compare two tensors without reading them; None if nothing differs."""
    a, b = pair.a, pair.b
    if (a.dtype, a.shape) == (b.dtype, b.shape):
        return None
    is_known = a.nbytes != b.nbytes or (a.digest is not None and b.digest is not None)
    return _tensor_diff(a, b, _have_equal_digests(a, b) if is_known else None)


def _read(a: LazyTensor, b: LazyTensor, meter: ProgressMeter) -> TensorDiff | None:
    """Read and compare two tensors of the same shape; None if they are equal."""
    done = 0

    def report(so_far: int) -> None:
        nonlocal done
        meter.add(max(0, so_far - done))  # comparing numbers starts from the first byte again
        done = max(done, so_far)

    if (a.dtype, a.nbytes) == (b.dtype, b.nbytes) and have_equal_bytes(a, b, report):
        return None
    both, numbers = _both_numeric(a, b), None
    if both is not None:
        numbers = compare_numbers(*both, lambda n: report(a.nbytes * n // a.n_elements))
    report(a.nbytes)
    return _tensor_diff(a, b, a.dtype != b.dtype and _have_equal_digests(a, b), numbers)


def _tensor_diff(
    a: LazyTensor,
    b: LazyTensor,
    is_bitwise_equal: bool | None,
    numbers: NumberDiff | None = None,
    problem: str | None = None,
) -> TensorDiff:
    return TensorDiff(a.name, a.dtype, b.dtype, a.shape, b.shape, is_bitwise_equal, numbers, problem)
