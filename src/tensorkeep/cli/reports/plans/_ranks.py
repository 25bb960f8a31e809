"""What each rank would read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import TYPE_CHECKING, Final

import tensorkeep
from tensorkeep.cli.terminal import Column, Line, columns, printable, size_text

if TYPE_CHECKING:
    from tensorkeep.checkpoint import RankReads
    from tensorkeep.encryption import Key


_SHOWN: Final = 16
"""Ranks that get a line each; if there are more, the first and the last."""

_COLUMNS: Final = (
    Column("rank"),
    Column("tensors", "right"),
    Column("wanted", "right"),
    Column("read", "right"),
    Column("requests", "right"),
)


def read_ranks(
    path: str, variant: str | None, trust: str | None, keys: list[Key] | None, n_ranks: int, dim: int
) -> list[RankReads]:
    """Compute what each rank would read; no data is read."""
    checkpoint = tensorkeep.checkpoint
    with tensorkeep.open(path, variant=variant, dangerous="record", trust=trust, key=keys) as tensors:
        tensors.require_names()
        plan = checkpoint.RankPlan(checkpoint.parts_of(tensors), (n_ranks,), checkpoint.sharded_along(dim))
    return [plan.reads_of(rank) for rank in range(n_ranks)]


def rank_lines(path: str, reads: Sequence[RankReads], dim: int) -> Iterator[Line]:
    """Write what each rank would read."""
    yield [(printable(path), "title")]
    yield [(f"  {len(reads):,} ranks, tensors cut along dimension {dim}; all ranks read those without it", "dim")]
    yield []
    hidden = range(_SHOWN // 2, len(reads) - _SHOWN // 2) if len(reads) > _SHOWN else range(0)
    rows = [_row(str(of_rank.rank), of_rank) for of_rank in reads if of_rank.rank not in hidden]
    if hidden:
        left_out: Line = [("…", "dim")]
        rows.insert(hidden.start, [[(f"{hidden.start}..{hidden.stop - 1}", "dim")], *[left_out] * 4])
    totals = [sum(getattr(of_rank, name) for of_rank in reads) for name in ("wanted_nbytes", "nbytes", "n_requests")]
    rows.append([
        [("all", "")],
        [],
        [(size_text(totals[0]), "")],
        [(size_text(totals[1]), "")],
        [(f"{totals[2]:,}", "")],
    ])
    yield from columns(_COLUMNS, rows)
    most = max(reads, key=lambda of_rank: of_rank.nbytes)
    share = most.nbytes / max(1, mean(of_rank.nbytes for of_rank in reads))
    yield []
    yield [(f"rank {most.rank} reads most: {size_text(most.nbytes)}, {share:.2f} times the mean", "")]


def _row(label: str, reads: RankReads) -> list[Line]:
    return [
        [(label, "")],
        [(f"{reads.n_tensors:,}", "")],
        [(size_text(reads.wanted_nbytes), "")],
        [(size_text(reads.nbytes), "")],
        [(f"{reads.n_requests:,}", "")],
    ]
