"""Parts of tensors as NumPy arrays, as far as they cost little."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tensorkeep.errors import LimitError
from tensorkeep.tensors import LazyTensor, TensorView, numeric, parse_index

Numbers = npt.NDArray[np.float64]

_MAX_NBYTES: Final = 32 * 2**20
"""Bytes that a picture may read."""

_MAX_N_ELEMENTS: Final = 2**23
"""Elements that a picture may have: few bytes of an expanded view or a compressed dataset can give many."""

_MAX_REQUESTS: Final = 1024
"""Separate ranges of bytes that a picture may read."""


def in_numpy(lazy: LazyTensor) -> LazyTensor:
    """Return a tensor that is read as a NumPy array of numbers, or refuse one without numbers."""
    lazy = numeric(lazy)
    return LazyTensor(lazy.name, lazy.entry, lazy.reader.with_framework("numpy"))


def is_cheap(lazy: LazyTensor, index: tuple[Any, ...]) -> bool:
    """Say whether a part can be read at once."""
    if not lazy.n_elements:
        return True
    if parse_index(index, lazy.shape).n_elements > _MAX_N_ELEMENTS:
        return False
    plan = TensorView({lazy.name: lazy}, path=lazy.name).plan({lazy.name: index})
    return plan.nbytes <= _MAX_NBYTES and plan.n_requests <= _MAX_REQUESTS


def refuse_costly(lazy: LazyTensor, index: tuple[Any, ...]) -> None:
    """Refuse a part that is too much for a picture."""
    if not is_cheap(lazy, index):
        raise LimitError(
            f"even a small part of tensor `{lazy.name}` takes more than {_MAX_NBYTES:,} bytes to read",
            tensor=lazy.name,
            hint="Convert the file, or read the part in a program",
        )


def as_numbers(elements: npt.NDArray[Any]) -> Numbers:
    """Return elements as float64, complex ones as their magnitudes."""
    with np.errstate(all="ignore"):
        wide = np.abs(elements) if elements.dtype.kind == "c" else elements
        return np.asarray(wide).astype(np.float64)
