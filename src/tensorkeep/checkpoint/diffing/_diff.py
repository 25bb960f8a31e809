"""What sets two checkpoints apart: names, dtypes and shapes first, then digests, and only then the numbers.

Of whole states also the data that are no tensors, and which tensors share memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Final

import msgspec

from tensorkeep.checkpoint._open import open_checkpoint
from tensorkeep.checkpoint.diffing._numbers import NumberDiff, compare_numbers, have_equal_bytes
from tensorkeep.checkpoint.diffing._states import DataDiff, data_diffs, tie_diffs
from tensorkeep.dtypes import BY_NAME
from tensorkeep.errors import FormatError, LimitError, TensorNotFoundError
from tensorkeep.kinds import Opened
from tensorkeep.parallel import ProgressMeter, batches_of, parallel_map
from tensorkeep.state import Node, plain_values, read_tree, selected
from tensorkeep.tensors import LazyTensor, LazyTensors, Selector, chooser

_MAX_THREADS: Final = 4
"""Threads that compare tensors; the memory's speed is the limit."""

_Tensors = Mapping[str, LazyTensor]
_IsChosen = Callable[[str], bool]


class _Pair(msgspec.Struct, frozen=True):
    """A tensor of both.

    Attributes:
        a: That of a.
        b: That of b.
        is_promised_equal: Whether digests, and the places in what these are of, say that its elements are the same.
    """

    a: LazyTensor
    b: LazyTensor
    is_promised_equal: bool


class TensorDiff(msgspec.Struct, frozen=True):
    """A tensor that two checkpoints have, and that is not the same in both.

    Attributes:
        name: Its name.
        dtype_a: Name of its dtype in a, such as `"BF16"`.
        dtype_b: The same in b.
        shape_a: Elements along each dimension in a.
        shape_b: The same in b.
        is_bitwise_equal: Whether its bytes are the same, though dtype or shape are not; None where that is not known
            (only digests and sizes tell it there).
        numbers: How its numbers differ; None where they were not compared, as those of different shapes or of a
            dtype that this version does not know.
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
        """Elements of the tensor in a."""
        return prod(self.shape_a)

    @property
    def n_different(self) -> int | None:
        """Elements that differ as numbers (NaN equals NaN, 0 equals -0), where they were compared.

        None differ where only the dtypes do, or the bits of NaN or of a zero's sign.
        """
        return None if self.numbers is None else self.numbers.n_different

    @property
    def max_abs(self) -> float | None:
        """Largest |a - b|, where numbers were compared; NaN where every pair that differs has a NaN."""
        return None if self.numbers is None else self.numbers.max_abs

    @property
    def max_rel(self) -> float | None:
        """Largest |a - b| / max(|a|, |b|), where numbers were compared; infinite where |a - b| is, NaN as above."""
        return None if self.numbers is None else self.numbers.max_rel

    @property
    def n_nan_a(self) -> int | None:
        """Elements of a that are NaN, where numbers were compared."""
        return None if self.numbers is None else self.numbers.n_nan_a

    @property
    def n_nan_b(self) -> int | None:
        """Elements of b that are NaN, where numbers were compared."""
        return None if self.numbers is None else self.numbers.n_nan_b

    @property
    def n_inf_a(self) -> int | None:
        """Elements of a that are infinite, where numbers were compared."""
        return None if self.numbers is None else self.numbers.n_inf_a

    @property
    def n_inf_b(self) -> int | None:
        """Elements of b that are infinite, where numbers were compared."""
        return None if self.numbers is None else self.numbers.n_inf_b


class Diff(msgspec.Struct, frozen=True):
    """What sets two checkpoints apart.

    Attributes:
        only_in_a: Names that only a has, in its order.
        only_in_b: Names that only b has, in its order.
        changed: Tensors of both that are not the same, in the order of a.
        n_equal: Tensors that are.
        n_unread: Of these, those that were not read, because their digests are equal: damage since they were saved
            does not show here, but in `verify`.
        data: Numbers, texts and all else in whole states that is no tensor and not the same, and types of containers.
        ties: Tensors of both that share memory with others in one of them only, or lie in it at another place.
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
        """Whether nothing does."""
        return not (self.only_in_a or self.only_in_b or self.changed or self.data or self.ties)


def diff(
    a: str | os.PathLike[str] | Mapping[str, LazyTensor],
    b: str | os.PathLike[str] | Mapping[str, LazyTensor],
    *,
    only: Selector | Iterable[Selector] | None = None,
    values: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Diff:
    """Compare two checkpoints, tensor by tensor, and of whole states all other data too.

    Tensors are the same if dtype, shape and every byte are. Those of equal digests are not read: `verify` tells
    whether they still are what they were. How tensors are spread over files, and their order, do not matter. Memory
    stays bounded however large they are.

    Other data are the same if types and values are; orders of dicts do not matter. A file that holds only tensors has
    none. Which tensors share memory is compared where both are safetensors files, and not views of some.

    Args:
        a: A file, a checkpoint or a view of one; or its path.
        b: Another.
        only: Which parts: shell patterns for dotted names (`*` crosses dots), or functions of a name. All if None.
        values: Whether to compare what is in the tensors too, and other data; not only names, dtypes, shapes and
            which tensors share memory.
        progress: Called with the bytes compared so far and the bytes in all, by one thread at a time. What it raises
            ends the work.

    Returns:
        What sets them apart.

    Raises:
        SourceMissingError: If there is nothing at a path, or a shard is missing.
        IntegrityError: If a checkpoint at a path is not whole.
        FormatError: If an index or a header is none, or what it says of a state is malformed.
        LimitError: If a state is nested too deep.
        UnsupportedError: If a state is of a later version.
        TensorNotFoundError: If nothing is chosen.
        TransportError: If the bytes cannot be read.
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
    """Return the nodes of what a state holds, or of the part of it that is chosen; None for tensors alone."""
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
    mine, theirs = a[name], b[name]
    promise = _promise(a, name, mine)
    return _Pair(mine.renamed(name), theirs, promise is not None and promise == _promise(b, name, theirs))


def _promise(tensors: _Tensors, name: str, lazy: LazyTensor) -> object:
    """Return what two tensors of one shape have in common only if their elements are the same; None if not known."""
    if lazy.digest is not None or not isinstance(tensors, Opened) or name not in tensors.aliases:
        return lazy.digest
    alias = tensors.aliases[name]
    digest = tensors.stored(alias.of).digest
    place = (alias.offset, alias.strides, alias.is_conj, alias.is_neg)
    return None if digest is None else (digest, lazy.dtype, lazy.shape, place)


def _compared(pairs: list[_Pair], progress: Callable[[int, int], None] | None) -> list[TensorDiff | None]:
    """Compare tensors, several at a time; None for those that are the same."""
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
    return a.dtype in BY_NAME and b.dtype in BY_NAME


def _have_equal_digests(a: LazyTensor, b: LazyTensor) -> bool:
    return a.digest is not None and a.digest == b.digest


def _unread(pair: _Pair) -> TensorDiff | None:
    """Compare what is known of two tensors without reading them; None if that is the same."""
    a, b = pair.a, pair.b
    if (a.dtype, a.shape) == (b.dtype, b.shape):
        return None
    is_known = a.nbytes != b.nbytes or (a.digest is not None and b.digest is not None)
    return _tensor_diff(a, b, _have_equal_digests(a, b) if is_known else None)


def _compare(a: LazyTensor, b: LazyTensor, meter: ProgressMeter) -> TensorDiff | None:
    """Read two tensors of one shape; None if they are the same."""
    done = 0

    def report(so_far: int) -> None:
        nonlocal done
        meter.add(max(0, so_far - done))  # numbers are compared from the start again
        done = max(done, so_far)

    if (a.dtype, a.nbytes) == (b.dtype, b.nbytes) and have_equal_bytes(a, b, report):
        return None
    numbers = compare_numbers(a, b, report) if a.dtype in BY_NAME else None
    report(a.nbytes)
    return _tensor_diff(a, b, a.dtype != b.dtype and _have_equal_digests(a, b), numbers)


def _tensor_diff(
    a: LazyTensor, b: LazyTensor, is_bitwise_equal: bool | None, numbers: NumberDiff | None = None
) -> TensorDiff:
    return TensorDiff(a.name, a.dtype, b.dtype, a.shape, b.shape, is_bitwise_equal, numbers)
