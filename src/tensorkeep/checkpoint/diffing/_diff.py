"""How two checkpoints differ: names, dtypes and shapes first, then digests, and only then the numbers.

For whole states, also the data that are not tensors, and which tensors share memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from tensorkeep.checkpoint._open import open_with
from tensorkeep.checkpoint.diffing._html import changed_tensors, folded_names, folded_values, tensor_row
from tensorkeep.checkpoint.diffing._pairs import Compared, TensorDiff, Tensors, compare_tensors
from tensorkeep.checkpoint.diffing._states import DataDiff, data_diffs, tie_diffs
from tensorkeep.encryption import KeyLike, Keys
from tensorkeep.errors import FormatError, LimitError, TensorNotFoundError
from tensorkeep.kinds import Opened, OpenOptions
from tensorkeep.markup import page
from tensorkeep.state import Node, plain_values, read_tree, selected
from tensorkeep.tensors import LazyTensor, LazyTensors, Selector, chooser, nothing_chosen

if TYPE_CHECKING:
    from tensorkeep.trust import Trust

_IsChosen = Callable[[str], bool]


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
        not_compared_in_a: Names of what a has and is never compared: arrays of strings, and tensors that are not
            read.
        not_compared_in_b: The same of b.
    """

    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]
    changed: tuple[TensorDiff, ...]
    n_equal: int
    n_unread: int
    data: tuple[DataDiff, ...] = ()
    ties: tuple[DataDiff, ...] = ()
    not_compared_in_a: tuple[str, ...] = ()
    not_compared_in_b: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether there is no difference in what was compared."""
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
            *folded_names("not compared in a", self.not_compared_in_a),
            *folded_names("not compared in b", self.not_compared_in_b),
        )


def diff(
    a: str | os.PathLike[str] | Mapping[str, LazyTensor],
    b: str | os.PathLike[str] | Mapping[str, LazyTensor],
    *,
    only: Selector | Iterable[Selector] | None = None,
    values: bool = True,
    progress: Callable[[int, int], None] | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
    trust: Trust | None = None,
) -> Diff:
    """Compare two checkpoints tensor by tensor, and for whole states also all other data.

    Tensors are equal if dtype, shape and every byte are. Tensors with equal digests are not read: use `verify` to
    find out whether they still match their digests. Sharding and the order of tensors do not matter. Memory use is
    bounded, however large the tensors are. A tensor that cannot be read, such as a huge expanded view, is among the
    changed ones, with a `problem`.

    Other data are equal if types and values are; the order of dicts does not matter. Types of containers are compared
    only between safetensors checkpoints, and so is which tensors share memory, but not between views of them.

    Args:
        a: A path, an open file or checkpoint, or a view of one.
        b: The checkpoint to compare with: the same types.
        only: Which parts to compare: shell patterns for dotted names (`*` crosses dots), or predicates on a name;
            all if None.
        values: Whether to compare tensors' elements and other data, not only names, dtypes, shapes and shared memory.
        progress: Called with the bytes compared so far and the total, by one thread at a time. If it raises, the
            work stops.
        key: The key of encrypted checkpoints at paths, the path of a file with it, or several of these. None uses
            keys from the environment.
        trust: Whose signatures count for checkpoints at paths; see `open`. Then both must be what they signed.

    Returns:
        The differences.

    Raises:
        SourceMissingError: If there is nothing at a path, or a shard is missing.
        IntegrityError: If a checkpoint at a path is incomplete or damaged.
        EncryptedError: If a checkpoint is encrypted, and the key is missing or another one.
        TrustError: If it is not proven that this is what was signed, or the policy does not allow the format.
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
    keys = Keys.given(key)
    a, b = _opened(a, keys, trust), _opened(b, keys, trust)
    selectors = [] if only is None else [only] if isinstance(only, str) or callable(only) else list(only)
    is_chosen = None if only is None else chooser(selectors)
    names_a, names_b = _names(a, is_chosen), _names(b, is_chosen)
    trees = [_tree(each, is_chosen) if values else None for each in (a, b)]
    if is_chosen and not (names_a or names_b or any(map(_has_data, trees))):
        raise _none_chosen(selectors, a, b)
    shared = [name for name in names_a if name in names_b]
    found: dict[str, Compared] = {}
    compare_tensors(a, b, shared, lambda each: found.update({each.name: each}), progress, values=values)
    differences = [found[name].difference for name in shared]
    return Diff(
        only_in_a=tuple(name for name in names_a if name not in names_b),
        only_in_b=tuple(name for name in names_b if name not in names_a),
        changed=tuple(each for each in differences if each is not None),
        n_equal=differences.count(None),
        n_unread=sum(values and each.difference is None and not each.is_read for each in found.values()),
        data=tuple(data_diffs(*trees, with_types=_has_state(a) and _has_state(b))),
        ties=_ties(a, b, shared),
        not_compared_in_a=_not_compared(a, is_chosen),
        not_compared_in_b=_not_compared(b, is_chosen),
    )


def diff_apart_from_tensors(
    a: Opened, b: Opened, names: Collection[str]
) -> tuple[tuple[DataDiff, ...], tuple[DataDiff, ...]]:
    """Return how other data differ, and which tensors of these names share memory with different ones."""
    data = data_diffs(_tree(a, None), _tree(b, None), with_types=_has_state(a) and _has_state(b))
    return tuple(data), _ties(a, b, names)


def _opened(given: str | os.PathLike[str] | Tensors, keys: Keys | None, trust: Trust | None) -> Tensors:
    if not isinstance(given, (str, os.PathLike)):
        return given
    opened = open_with(given, OpenOptions(keys=None if keys is None else keys.optional()), trust)
    opened.require_names()
    return opened


def _none_chosen(selectors: Sequence[Selector], a: Tensors, b: Tensors) -> TensorNotFoundError:
    paths = [each.path for each in (a, b) if isinstance(each, LazyTensors) and each.path is not None]
    error = nothing_chosen(selectors, [*a, *b], None)
    return error.with_fields(message="no tensor is chosen" + (" in " if paths else "") + " and ".join(paths))


def _names(tensors: Tensors, is_chosen: _IsChosen | None) -> dict[str, None]:
    return dict.fromkeys(tensors if is_chosen is None else filter(is_chosen, tensors))


def _not_compared(tensors: Tensors, is_chosen: _IsChosen | None) -> tuple[str, ...]:
    """Return the names of what is neither a tensor nor plain data."""
    if not isinstance(tensors, Opened):
        return ()
    unread = [each.name for each in tensors.left_out() if not (each.is_data or each.is_run)]
    names = [*tensors.strings, *unread]
    return tuple(filter(is_chosen, names)) if is_chosen else tuple(names)


def _tree(tensors: Tensors, is_chosen: _IsChosen | None) -> Node:
    """Return the nodes of a state, or of its selected part; None if there are only tensors."""
    state = tensors.state if isinstance(tensors, LazyTensors) else None
    try:
        if state is not None and bytes(state.tree):
            tree = read_tree(bytes(state.tree), tensors.__contains__)
        else:
            tree = tensors.nodes() if isinstance(tensors, Opened) else None
        return tree if tree is None or is_chosen is None else _part(tree, is_chosen)
    except (FormatError, LimitError) as error:
        raise error.with_fields(path=getattr(tensors, "path", None)) from None


def _has_state(tensors: Tensors) -> bool:
    """Whether a state says which types everything had; other formats and libraries change these."""
    return isinstance(tensors, LazyTensors) and tensors.state is not None


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


def _ties(a: Tensors, b: Tensors, names: Collection[str]) -> tuple[DataDiff, ...]:
    if not (isinstance(a, Opened) and isinstance(b, Opened) and a.lists_aliases and b.lists_aliases):
        return ()
    return tuple(tie_diffs(a.aliases, b.aliases, names))
