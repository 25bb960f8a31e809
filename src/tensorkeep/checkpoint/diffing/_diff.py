"""How two checkpoints differ: names, dtypes and shapes first, then digests, and only then the numbers.

For whole states, also the data that are not tensors, and which tensors share memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Final

import msgspec

from tensorkeep.checkpoint._open import open_checkpoint
from tensorkeep.checkpoint.diffing._html import changed_tensors, folded_names, folded_values, tensor_row
from tensorkeep.checkpoint.diffing._numbers import NumberDiff, compare_numbers, have_equal_bytes, have_numbers
from tensorkeep.checkpoint.diffing._states import DataDiff, data_diffs, tie_diffs
from tensorkeep.errors import FormatError, LimitError, TensorNotFoundError
from tensorkeep.kinds import Opened
from tensorkeep.markup import page
from tensorkeep.parallel import ProgressMeter, batches_of, parallel_map
from tensorkeep.state import Node, plain_values, read_tree, selected
from tensorkeep.tensors import LazyTensor, LazyTensors, Selector, chooser

_MAX_THREADS: Final = 4
"""Threads that compare tensors; memory bandwidth is the limit."""

_Tensors = Mapping[str, LazyTensor]
_IsChosen = Callable[[str], bool]


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
    """

    name: str
    dtype_a: str
    dtype_b: str
    shape_a: tuple[int, ...]
    shape_b: tuple[int, ...]
    is_bitwise_equal: bool | None = None
    numbers: NumberDiff | None = None

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


class Diff(msgspec.Struct, frozen=True):
    """How two checkpoints differ.

    Attributes:
        only_in_a: Names that only a has, in its order.
        only_in_b: Names that only b has, in its order.
        changed: Tensors that are in both and differ, in the order of a.
        n_equal: Number of tensors that are in both and equal.
        n_unread: How many of the equal tensors were not read because their digests are equal. Damage to them since
            they were saved does not show here; use `verify`.
        data: Differences in whole states besides tensors: numbers, text, types of containers.
        ties: Tensors that share memory with different tensors in a and b, or lie elsewhere in the shared memory.
    """

    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]
    changed: tuple[TensorDiff, ...]
    n_equal: int
    n_unread: int
    data: tuple[DataDiff, ...] = ()
    ties: tuple[DataDiff, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether there is no difference."""
        return not (self.only_in_a or self.only_in_b or self.changed or self.data or self.ties)

    def _repr_html_(self) -> str:
        rows = (
            tensor_row(
                each.name, (each.dtype_a, each.shape_a), (each.dtype_b, each.shape_b), each.n_elements, each.numbers
            )
            for each in self.changed
        )
        return page(
            "equal" if self.is_equal else "different",
            [f"{self.n_equal:,} equal"],
            *changed_tensors(rows, len(self.changed)),
            *folded_names("only in a", self.only_in_a),
            *folded_names("only in b", self.only_in_b),
            *folded_values("other values", self.data),
            *folded_values("shared memory", self.ties),
        )


def diff(
    a: str | os.PathLike[str] | Mapping[str, LazyTensor],
    b: str | os.PathLike[str] | Mapping[str, LazyTensor],
    *,
    only: Selector | Iterable[Selector] | None = None,
    values: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Diff:
    """Compare two checkpoints tensor by tensor, and for whole states also all other data.

    Tensors are equal if dtype, shape and every byte are. Tensors with equal digests are not read: use `verify` to
    find out whether they still match their digests. Sharding and the order of tensors do not matter. Memory use is
    bounded, however large the tensors are.

    Other data are equal if types and values are; the order of dicts does not matter. Which tensors share memory is
    compared only between safetensors checkpoints, not between views of them.

    Args:
        a: A path, an open file or checkpoint, or a view of one.
        b: The checkpoint to compare with: the same types.
        only: Which parts to compare: shell patterns for dotted names (`*` crosses dots), or predicates on a name;
            all if None.
        values: Whether to compare tensors' elements and other data, not only names, dtypes, shapes and shared memory.
        progress: Called with the bytes compared so far and the total, by one thread at a time. If it raises, the
            work stops.

    Returns:
        The differences.

    Raises:
        SourceMissingError: If there is nothing at a path, or a shard is missing.
        IntegrityError: If a checkpoint at a path is incomplete or damaged.
        FormatError: If an index or a header cannot be parsed, or the description of a state is malformed.
        UnsafeError: If a pickle names something that could only do harm.
        LimitError: If a state is nested too deeply, or a header, index or pickle exceeds a bound.
        UnsupportedError: If a path cannot be opened, or a state is of a later version.
        TensorNotFoundError: If `only` matches nothing.
        TypeError: If `only` is neither text, nor callable, nor an iterable of these.
        TransportError: If the bytes cannot be read.

    Examples:
        >>> difference = tensorkeep.diff("model.safetensors", "model.safetensors")
        >>> difference.is_equal
        True
    """
    a, b = _opened(a), _opened(b)
    selectors = [] if only is None else [only] if isinstance(only, str) or callable(only) else list(only)
    is_chosen = None if only is None else chooser(selectors)
    names_a, names_b = _names(a, is_chosen), _names(b, is_chosen)
    trees = [_tree(each, is_chosen) if values else None for each in (a, b)]
    if is_chosen and not (names_a or names_b or any(map(_has_data, trees))):
        raise TensorNotFoundError(
            "no tensor is chosen", expected="a name that matches " + " or ".join(map(repr, selectors))
        )
    pairs = [_pair(a, b, name) for name in names_a if name in names_b]
    found = _compared(pairs, progress) if values else [_unread(pair) for pair in pairs]
    return Diff(
        only_in_a=tuple(name for name in names_a if name not in names_b),
        only_in_b=tuple(name for name in names_b if name not in names_a),
        changed=tuple(changed for changed in found if changed is not None),
        n_equal=found.count(None),
        n_unread=sum(
            result is None and values and pair.is_promised_equal for pair, result in zip(pairs, found, strict=True)
        ),
        data=tuple(data_diffs(*trees)),
        ties=_ties(a, b, [pair.a.name for pair in pairs]),
    )


def _opened(given: str | os.PathLike[str] | _Tensors) -> _Tensors:
    return open_checkpoint(given) if isinstance(given, (str, os.PathLike)) else given


def _names(tensors: _Tensors, is_chosen: _IsChosen | None) -> dict[str, None]:
    return dict.fromkeys(tensors if is_chosen is None else filter(is_chosen, tensors))


def _tree(tensors: _Tensors, is_chosen: _IsChosen | None) -> Node:
    """Return the nodes of a state, or of its selected part; None if there are only tensors."""
    state = tensors.state if isinstance(tensors, LazyTensors) else None
    if state is None or not bytes(state.tree):
        return None
    try:
        tree = read_tree(bytes(state.tree), tensors.__contains__)
        return tree if is_chosen is None else _part(tree, is_chosen)
    except (FormatError, LimitError) as error:
        raise error.with_fields(path=getattr(tensors, "path", None)) from None


def _part(tree: Node, is_chosen: _IsChosen) -> Node:
    is_any = False

    def wanted(path: str) -> bool:
        nonlocal is_any
        is_any |= (found := is_chosen(path))
        return found

    part = selected(tree, wanted)
    return part if is_any else None


def _has_data(tree: Node) -> bool:
    return tree is not None and next(plain_values(tree), None) is not None


def _ties(a: _Tensors, b: _Tensors, names: list[str]) -> tuple[DataDiff, ...]:
    if not (isinstance(a, Opened) and isinstance(b, Opened) and a.lists_aliases and b.lists_aliases):
        return ()
    return tuple(tie_diffs(a.aliases, b.aliases, names))


def _pair(a: _Tensors, b: _Tensors, name: str) -> _Pair:
    lazy_a, lazy_b = a[name], b[name]
    promise = _promise(a, name, lazy_a)
    return _Pair(lazy_a.renamed(name), lazy_b, promise is not None and promise == _promise(b, name, lazy_b))


def _promise(tensors: _Tensors, name: str, lazy: LazyTensor) -> object:
    """Return a value that two tensors of the same shape share only if their elements are equal; None if unknown."""
    if lazy.digest is not None or not isinstance(tensors, Opened) or name not in tensors.aliases:
        return lazy.digest
    alias = tensors.aliases[name]
    digest = tensors.stored(alias.of).digest
    place = (alias.offset, alias.strides, alias.is_conj, alias.is_neg)
    return None if digest is None else (digest, lazy.dtype, lazy.shape, place)


def _compared(pairs: list[_Pair], progress: Callable[[int, int], None] | None) -> list[TensorDiff | None]:
    """Compare tensors in parallel; None for each equal pair."""
    to_read = [place for place, pair in enumerate(pairs) if _must_be_read(pair)]
    meter = ProgressMeter(progress, sum(pairs[place].a.nbytes for place in to_read))
    batches = batches_of(to_read, lambda place: pairs[place].a.nbytes)

    def compare(batch: list[int]) -> list[tuple[int, TensorDiff | None]]:
        return [(place, _compare(pairs[place].a, pairs[place].b, meter)) for place in batch]

    n_threads = min(_MAX_THREADS, os.cpu_count() or 1, len(batches))
    compared = parallel_map(compare, batches, n_threads=n_threads, meter=meter)
    found = {place: result for results in compared for place, result in results}
    return [found[place] if place in found else _unread(pair) for place, pair in enumerate(pairs)]


def _must_be_read(pair: _Pair) -> bool:
    a, b = pair.a, pair.b
    if a.shape != b.shape:
        return False
    if a.dtype == b.dtype:
        return not pair.is_promised_equal
    return have_numbers(a, b)


def _have_equal_digests(a: LazyTensor, b: LazyTensor) -> bool:
    return a.digest is not None and a.digest == b.digest


def _unread(pair: _Pair) -> TensorDiff | None:
    """Compare two tensors without reading them; None if nothing differs."""
    a, b = pair.a, pair.b
    if (a.dtype, a.shape) == (b.dtype, b.shape):
        return None
    is_known = a.nbytes != b.nbytes or (a.digest is not None and b.digest is not None)
    return _tensor_diff(a, b, _have_equal_digests(a, b) if is_known else None)


def _compare(a: LazyTensor, b: LazyTensor, meter: ProgressMeter) -> TensorDiff | None:
    """Read and compare two tensors of the same shape; None if they are equal."""
    done = 0

    def report(so_far: int) -> None:
        nonlocal done
        meter.add(max(0, so_far - done))  # comparing numbers starts from the first byte again
        done = max(done, so_far)

    if (a.dtype, a.nbytes) == (b.dtype, b.nbytes) and have_equal_bytes(a, b, report):
        return None
    numbers = compare_numbers(a, b, report) if have_numbers(a, b) else None
    report(a.nbytes)
    return _tensor_diff(a, b, a.dtype != b.dtype and _have_equal_digests(a, b), numbers)


def _tensor_diff(
    a: LazyTensor, b: LazyTensor, is_bitwise_equal: bool | None, numbers: NumberDiff | None = None
) -> TensorDiff:
    return TensorDiff(a.name, a.dtype, b.dtype, a.shape, b.shape, is_bitwise_equal, numbers)
