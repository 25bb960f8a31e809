"""The smallest weights as zeros: two of four, or a share of each tensor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tensorkeep.checkpoint import refuse_quantized
from tensorkeep.errors import RefusedError, TensorNotFoundError, UnsupportedError
from tensorkeep.tensors import LazyTensor, LazyTensors, Scope, Selector, TensorView, chosen_names, computed_tensor
from tensorkeep.tensors.lazy import selectors_of
from tensorkeep.transforms._view import view_of
from tensorkeep.transforms._vocabulary import is_of_vocabulary

Array = npt.NDArray[Any]

_MAX_GROUP: Final = 1024

_BLOCK_LENGTH: Final = 2**15
"""Weights to compare at a time: they and what is counted stay in the L2 cache."""

_pattern = re.compile("([0-9]{1,4}):([0-9]{1,4})").fullmatch


def sparsify(
    tensors: LazyTensors,
    keep: str | None = None,
    *,
    zeros: float | None = None,
    names: Selector | Iterable[Selector] | None = None,
) -> TensorView:
    """Return a view in which the weights with the smallest magnitudes are zeros; the others stay, bit for bit.

    Args:
        tensors: An open file, a checkpoint or a view.
        keep: How many out of how many neighbors in a row stay, such as `"2:4"`, which GPUs multiply faster. torch's
            `WeightNormSparsifier` chooses the same ones.
        zeros: The share of each tensor that becomes zeros, from 0 to 1, as torch's `l1_unstructured` does.
        names: Patterns or functions that choose the tensors; if None, all matrices of floating-point numbers whose
            names end in `.weight`, except embeddings and the head.

    Raises:
        TensorNotFoundError: If no tensor is chosen (also a KeyError).
        RefusedError: If a row cannot be divided into groups, or a tensor is not floating point, or is quantized.
        UnsupportedError: Unless exactly one of `keep` and `zeros` is given, and it is in range.
    """
    prune, scope, group = _way(keep, zeros)
    chosen = [name for name, lazy in tensors.items() if _is_weight(lazy)]
    if names is not None:
        chosen = chosen_names(tensors, selectors_of(names))
    if not chosen:
        raise TensorNotFoundError(
            "there are no weights to set to zero",
            path=tensors.path,
            expected="matrices with names that end in .weight",
            hint="names= (--select) chooses others",
        )
    refuse_quantized(tensors, chosen)
    sparse = {name: _pruned(tensors[name], prune, scope, group) for name in chosen}
    return view_of(tensors, {name: sparse.get(name, lazy) for name, lazy in tensors.items()})


def _way(keep: str | None, zeros: float | None) -> tuple[Callable[[Array], Array], Scope, int]:
    if (keep is None) == (zeros is None):
        raise UnsupportedError(
            "it is not clear how many weights to keep", expected="either keep= (--keep) or zeros= (--zeros)"
        )
    if zeros is not None:
        if not 0 <= zeros <= 1:
            raise UnsupportedError("the share of zeros is out of range", expected="0 to 1", found=str(zeros))
        return partial(without_smallest, zeros), "tensor", 1
    found = _pattern(str(keep))
    n_kept, n_group = map(int, found.groups()) if found else (0, 0)
    if not 0 < n_kept < n_group <= _MAX_GROUP:
        raise UnsupportedError("not a pattern of sparsity", expected="one such as 2:4", found=repr(keep))
    return partial(without_smallest_of_group, n_group - n_kept, n_group), "rows", n_group


def _is_weight(lazy: LazyTensor) -> bool:
    is_matrix = lazy.ndim == 2 and lazy.is_floating_point and lazy.name.endswith(".weight")
    return is_matrix and is_of_vocabulary(lazy.name) is None


def _pruned(lazy: LazyTensor, prune: Callable[[Array], Array], scope: Scope, group: int) -> LazyTensor:
    if not lazy.is_floating_point or not lazy.ndim or lazy.shape[-1] % group:
        raise RefusedError(
            f"tensor `{lazy.name}` cannot be made sparse",
            tensor=lazy.name,
            expected="floating-point numbers" + (f" in rows of a multiple of {group}" if group > 1 else ""),
            found=f"{lazy.dtype} {list(lazy.shape)}",
            hint="names= (--select) chooses the tensors",
        )
    scope = "tensor" if lazy.ndim == 1 else scope
    return computed_tensor(lazy.name, prune, (lazy,), scope=scope, framework="numpy", in_threads=scope == "rows")


def without_smallest(share: float, array: Array) -> Array:
    """Return an array with a share of its elements, the smallest, set to zero."""
    sparse = array.copy()
    flat = sparse.reshape(-1)
    n_zeros = round(share * flat.size)
    if n_zeros:
        flat[np.argpartition(_sizes(flat), n_zeros - 1)[:n_zeros]] = 0
    return sparse


def without_smallest_of_group(n_zeros: int, n_group: int, array: Array) -> Array:
    """Return an array with the smallest elements of each group of neighbors in a row set to zero."""
    sparse = array.copy()
    groups = sparse.reshape(-1, n_group)
    step = max(1, _BLOCK_LENGTH // n_group)
    for start in range(0, len(groups), step):
        block = groups[start : start + step]
        sizes = np.ascontiguousarray(_sizes(block).T)
        for place in range(n_group):
            n_smaller = np.zeros(len(block), np.uint16)
            for other in range(n_group):
                if other != place:
                    is_smaller = np.less_equal if other < place else np.less
                    n_smaller += is_smaller(sizes[other], sizes[place])
            block[n_smaller < n_zeros, place] = 0
    return sparse


def _sizes(array: Array) -> Array:
    """Return numbers in the order of magnitudes: the bits without the sign, in which NaN is the largest."""
    if array.dtype.itemsize == 1:  # a FNUZ dtype has its NaN where others have -0
        sizes: Array = np.abs(array.astype(np.float32))
        return sizes
    words = array.view(f"u{array.dtype.itemsize}")
    without_sign: Array = words & words.dtype.type(np.iinfo(words.dtype).max >> 1)
    return without_sign
