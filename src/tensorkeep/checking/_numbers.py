"""What the elements of tensors say: NaNs, infinities, tensors and rows of nothing but zeros."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tensorkeep.checking._findings import CheckFinding, Severity, finding_about
from tensorkeep.errors import DtypeError, UnsupportedError
from tensorkeep.measuring import TensorStatistics
from tensorkeep.tensors import LazyTensor
from tensorkeep.texts import counted

_BLOCK_NBYTES: Final = 8 * 2**20
"""Bytes of rows that are read at once."""

_MAX_ROW_NBYTES: Final = 64 * 2**20

_NARROW: Final = ("embed", "wte", "wpe", "lm_head", "shared")
"""Parts of names of embeddings, where rows of tokens that never occur may well be zero."""

_BEGIN_AS_ZERO: Final = ("lora_B", "lora_up", "lora_embedding_A", "zero", "adaLN", "gate", "proj_out")
"""Parts of names of tensors that are zero when training begins."""

_MAY_BE_ZERO: Final = ("bias", "zero_point", "qzeros")

_MAY_BE_INFINITE: Final = ("mask", "bias_table")


def examine_numbers(
    tensors: Mapping[str, LazyTensor], measured: Mapping[str, TensorStatistics]
) -> Iterator[CheckFinding]:
    """Find what makes no sense in measured tensors; rows are read again only where there are enough zeros."""
    yield from _not_numbers(measured)
    empty = [each.name for each in measured.values() if _is_weight(each) and each.n_elements == each.n_zeros > 0]
    begun = [name for name in empty if _has_part(name, _BEGIN_AS_ZERO)]
    yield from _all_zero([name for name in empty if name not in set(begun)], "warning")
    yield from _all_zero(begun, "note")
    yield from _dead_rows({
        name: tensors[name] for name, each in measured.items() if name not in set(empty) and _may_have_dead_rows(each)
    })


def _is_weight(each: TensorStatistics) -> bool:
    """Whether a tensor is more than a bias, a zero point or a vector, which may well be zero."""
    return len(each.shape) > 1 and not _has_part(each.name.rpartition(".")[2], _MAY_BE_ZERO)


def _not_numbers(measured: Mapping[str, TensorStatistics]) -> Iterator[CheckFinding]:
    for code, what, found in (
        ("nan", "NaNs", {name: each.n_nan for name, each in measured.items() if each.n_nan}),
        (
            "inf",
            "infinities",
            {
                name: each.n_inf
                for name, each in measured.items()
                if each.n_inf and not _has_part(name.rpartition(".")[2], _MAY_BE_INFINITE)
            },
        ),
    ):
        if found:
            yield finding_about(
                code,
                "error",
                f"{counted(len(found), 'tensor')} with {what}",
                list(found),
                expected="finite numbers",
                found=f"{what}: {sum(found.values()):,}",
                advice="Go back to a step before training diverged; tensorkeep verify says if it is damage instead",
            )


def _all_zero(names: list[str], severity: Severity) -> Iterator[CheckFinding]:
    if names:
        yield finding_about(
            "all-zero",
            severity,
            f"{counted(len(names), 'tensor')} with nothing but zeros",
            names,
            advice="It may never have been written: compare it with where it came from",
        )


def _may_have_dead_rows(each: TensorStatistics) -> bool:
    n_rows = each.shape[0] if _is_weight(each) else 0
    return n_rows > 1 and each.n_zeros >= each.n_elements // n_rows > 1


def _dead_rows(tensors: Mapping[str, LazyTensor]) -> Iterator[CheckFinding]:
    dead: dict[str, int] = {}
    for name, lazy in tensors.items():
        if lazy.is_floating_point and not lazy.is_quantized and (n_dead := _n_dead_rows(lazy)):
            dead[name] = n_dead
    others = {name: n for name, n in dead.items() if not _has_part(name, _NARROW)}
    narrow = {name: n for name, n in dead.items() if name not in others and n > 1}  # one is for padding
    yield from _with_dead_rows(others, tensors, "warning")
    yield from _with_dead_rows(narrow, tensors, "note")


def _with_dead_rows(
    dead: Mapping[str, int], tensors: Mapping[str, LazyTensor], severity: Severity
) -> Iterator[CheckFinding]:
    for name, n_dead in list(dead.items())[:1]:
        yield finding_about(
            "dead-rows",
            severity,
            f"{counted(len(dead), 'tensor')} with rows of zeros",
            list(dead),
            found=f"{n_dead:,} of {tensors[name].shape[0]:,} rows in `{name:.200}`",
            advice="Padding of a vocabulary is like that; elsewhere these outputs are always the same",
        )


def _n_dead_rows(lazy: LazyTensor) -> int:
    row_nbytes = max(1, lazy.nbytes // lazy.shape[0])
    if row_nbytes > _MAX_ROW_NBYTES:
        return 0
    rows = lazy.with_framework("numpy")
    step = max(1, _BLOCK_NBYTES // row_nbytes)
    n_dead = 0
    try:
        for start in range(0, lazy.shape[0], step):
            block = rows[start : start + step]
            n_dead += int((~(block != 0).reshape(len(block), -1).any(axis=1)).sum())
    except (DtypeError, UnsupportedError):  # numbers that NumPy does not have; they were not measured either
        return 0
    return n_dead


def _has_part(name: str, parts: tuple[str, ...]) -> bool:
    return any(part in name for part in parts)
