"""`statistics`: what the numbers of a tensor, a file or a checkpoint are like."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import overload

from tensorkeep.checkpoint import open_checkpoint
from tensorkeep.encryption import KeyLike
from tensorkeep.errors import DtypeError
from tensorkeep.measuring._measure import measure
from tensorkeep.measuring._result import TensorStatistics
from tensorkeep.parallel import Progress
from tensorkeep.tensors import LazyTensor, Selector, chosen_names, nothing_chosen, selectors_of


@overload
def statistics(what: LazyTensor, *, progress: Progress | None = None) -> TensorStatistics: ...


@overload
def statistics(
    what: str | os.PathLike[str] | Mapping[str, LazyTensor],
    *,
    names: Selector | Iterable[Selector] | None = None,
    progress: Progress | None = None,
) -> dict[str, TensorStatistics]: ...


def statistics(
    what: str | os.PathLike[str] | LazyTensor | Mapping[str, LazyTensor],
    *,
    names: Selector | Iterable[Selector] | None = None,
    progress: Progress | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
) -> TensorStatistics | dict[str, TensorStatistics]:
    """Return extremes, mean, spread, norm, histograms, and the number of zeros, NaNs and infinities of tensors.

    Every element is read once, in parallel and in less than 100 MB of memory, however large the tensors are. The
    result does not depend on the number of threads. Quantized tensors are measured as the numbers that `dequantize`
    gives.

        tensorkeep.statistics(file["lm_head.weight"]).std
        bad = [each for each in tensorkeep.statistics("run/").values() if each.n_nan]

    Args:
        what: A lazy tensor; or a path, an open file or checkpoint, or a view of one.
        names: Which tensors of a file: shell patterns (`*` crosses dots), or functions of a name; all if None.
        progress: Called with the bytes counted so far and the total, by one thread at a time. If it raises, the work
            stops.
        key: The key of an encrypted checkpoint at a path; see `open`.

    Returns:
        The statistics of the tensor; or name to statistics, in the order of the file. There, a tensor of a dtype that
        cannot be read has a `problem` instead of numbers.

    Raises:
        SourceMissingError: If there is nothing at a path, or a shard is missing.
        EncryptedError: If it is encrypted, and the key is missing or another one.
        IntegrityError: If a checkpoint at a path is incomplete or damaged.
        FormatError: If a file cannot be parsed.
        UnsafeError: If a pickle names something that could only do harm.
        LimitError: If a header, index or pickle exceeds a bound.
        UnsupportedError: If a path cannot be opened.
        TensorNotFoundError: If `names` matches nothing.
        DtypeError: If a single tensor cannot be read as numbers.
        TypeError: If `names` is neither text, nor callable, nor an iterable of these.
        TransportError: If the bytes cannot be read.

    Examples:
        >>> measured = tensorkeep.statistics("model.safetensors", names="head.*")
        >>> measured["head.bias"].n_zeros
        1000
    """
    if isinstance(what, LazyTensor):
        found = measure({what.name: what}, progress)[what.name]
        if found.problem is not None:
            raise DtypeError(found.problem, tensor=what.name)
        return found
    if isinstance(what, str | os.PathLike):
        with open_checkpoint(what, key=key) as opened:
            opened.require_names()
            return statistics(opened, names=names, progress=progress)
    if names is None:
        return measure(what, progress)
    selectors = selectors_of(names)
    chosen = chosen_names(what, selectors)
    if not chosen:
        raise nothing_chosen(selectors, what, getattr(what, "path", None))
    return measure({name: what[name] for name in chosen}, progress)
