"""The rows of a vocabulary: of embeddings, and of the layer that gives a number for each token."""

from __future__ import annotations

import re
from collections.abc import Iterable
from operator import index
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from tensorkeep.checkpoint import refuse_quantized
from tensorkeep.errors import RefusedError, TensorNotFoundError, UnsupportedError
from tensorkeep.limits import PACK_NBYTES
from tensorkeep.locks import ReadLock
from tensorkeep.tensors import LazyTensor, LazyTensors, Region, Selector, TensorView, chosen_names, computed_tensor
from tensorkeep.tensors.lazy import selectors_of
from tensorkeep.texts import listed
from tensorkeep.transforms._view import view_of
from tensorkeep.transforms.arranging import part_of, tiled

NewRows: TypeAlias = Literal["zeros", "mean"]
"""What new rows are: zeros, or the mean of the others."""

_MAX_SIZE: Final = 2**24
"""Tokens; the largest vocabularies have 262,144."""

_ENDINGS: Final = (
    *("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "tok_embeddings.weight", "shared.weight"),
    *("lm_head.weight", "lm_head.bias", "embed_out.weight", "lm_head.decoder.weight", "lm_head.decoder.bias"),
    *("cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "cls.predictions.bias"),
)

is_of_vocabulary = re.compile(rf"(?:.*\.)?(?:{'|'.join(map(re.escape, _ENDINGS))})", re.DOTALL).fullmatch


def resize_vocabulary(
    tensors: LazyTensors,
    size: int | None = None,
    *,
    multiple_of: int | None = None,
    rows: NewRows = "zeros",
    names: Selector | Iterable[Selector] | None = None,
) -> TensorView:
    """Return a view whose embeddings and head have more or fewer rows.

    Other rows stay as they are, bit for bit. `rewrite` and the command also change `vocab_size` in `config.json`.

    Args:
        tensors: An open file, a checkpoint or a view.
        size: The new number of tokens; None keeps the old one, unless `multiple_of` rounds it up.
        multiple_of: Round the number up to a multiple of this, such as 64.
        rows: What new rows contain: `"zeros"`, or the `"mean"` of the existing rows.
        names: Patterns or functions that choose the tensors; if None, usual names such as `embed_tokens.weight` and
            `lm_head.weight`. All must have the same number of rows.

    Raises:
        TensorNotFoundError: If there is no such tensor (also a KeyError).
        RefusedError: If their numbers of rows differ, or one is quantized.
        UnsupportedError: If the size is missing or out of range, or there is no such kind of rows.
    """
    found = vocabulary_of(tensors, names)
    old = next(iter(found.values())).shape[0]
    new = _new_size(old, size, multiple_of)
    if rows not in get_args(NewRows):
        raise UnsupportedError("there is no such kind of rows", expected="zeros or mean", found=repr(rows))
    resized = {name: _resized(lazy, new, rows, tensors.path) for name, lazy in found.items()}
    return view_of(tensors, {name: resized.get(name, lazy) for name, lazy in tensors.items()})


def vocabulary_of(tensors: LazyTensors, names: Selector | Iterable[Selector] | None = None) -> dict[str, LazyTensor]:
    """Return the tensors that have a row for each token."""
    chosen = chosen_names(tensors, (is_of_vocabulary,) if names is None else selectors_of(names))
    found = {name: tensors[name] for name in chosen}
    if not found:
        raise TensorNotFoundError(
            "there is no tensor with a row for each token",
            path=tensors.path,
            expected="a name such as `model.embed_tokens.weight` or `lm_head.weight`",
            hint="names= (--select) chooses others",
        )
    refuse_quantized(tensors, found)
    for name, lazy in found.items():
        if not lazy.is_floating_point or not lazy.ndim or not lazy.shape[0]:
            raise RefusedError(
                f"the number of rows of tensor `{name}` cannot be changed",
                path=tensors.path,
                tensor=name,
                expected="floating-point numbers, in at least one row",
                found=f"{lazy.dtype} {list(lazy.shape)}",
                hint="Choose other tensors with names= (--select)",
            )
    if len({lazy.shape[0] for lazy in found.values()}) > 1:
        raise RefusedError(
            "the tensors have different numbers of rows",
            path=tensors.path,
            expected="one vocabulary",
            found=listed(f"`{name}` {list(lazy.shape)}" for name, lazy in found.items()),
            hint="names= (--select) chooses some of them",
        )
    return found


def _new_size(old: int, size: int | None, multiple_of: int | None) -> int:
    if size is None and multiple_of is None:
        raise UnsupportedError("there is no new size", expected="size= (--size) or multiple_of= (--multiple-of)")
    new = old if size is None else index(size)
    step = 1 if multiple_of is None else index(multiple_of)
    if step < 1 or not 0 < new <= _MAX_SIZE or -(-new // step) * step > _MAX_SIZE:
        found = f"{new} rounded up to a multiple of {step}"
        raise UnsupportedError("the new size is out of range", expected=f"1 to {_MAX_SIZE:,}", found=found)
    return -(-new // step) * step


def _resized(lazy: LazyTensor, n_rows: int, rows: NewRows, path: str) -> LazyTensor:
    old = lazy.shape[0]
    if n_rows <= old:
        return lazy if n_rows == old else _first_rows(lazy, n_rows)
    fill = _zeros if rows == "zeros" else _MeanRow(lazy)
    blocks = [min(old, n_rows - start) for start in range(old, n_rows, old)]
    added = [
        computed_tensor(lazy.name, fill, (_first_rows(lazy, n),), scope="rows", framework="numpy") for n in blocks
    ]
    return tiled(lazy.name, [[lazy, *added]], path=path)


def _first_rows(lazy: LazyTensor, n_rows: int) -> LazyTensor:
    return part_of(lazy, Region((0,) * lazy.ndim, (n_rows, *lazy.shape[1:])))


def _zeros(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.zeros_like(rows)


class _MeanRow:
    """Gives rows that are the mean of a tensor's; it is computed once, in F64."""

    def __init__(self, lazy: LazyTensor) -> None:
        self._lazy = lazy
        self._lock = ReadLock()
        self._row: npt.NDArray[Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _MeanRow, (self._lazy,)

    def __call__(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        with self._lock:
            if self._row is None:
                self._row = self._computed()
        return np.broadcast_to(self._row.astype(rows.dtype), rows.shape)

    def _computed(self) -> npt.NDArray[Any]:
        lazy = self._lazy.with_framework("numpy")
        step = max(1, PACK_NBYTES // max(1, lazy.nbytes // len(lazy)))
        total = np.zeros(lazy.shape[1:], np.float64)
        with np.errstate(all="ignore"):
            for start in range(0, len(lazy), step):
                total += np.asarray(lazy[start : start + step]).astype(np.float64).sum(0)
            return total / len(lazy)
