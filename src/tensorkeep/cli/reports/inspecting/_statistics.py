"""What `inspect --stats` shows: a row for each tensor, and which of them have NaNs or infinities. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensorkeep.cli.terminal import Column, Line, Span, columns, printable, share_text, sparkline
from tensorkeep.texts import counted, listed

if TYPE_CHECKING:
    from tensorkeep.measuring import TensorStatistics

_COLUMNS: Final = (
    Column("tensor"),
    Column("dtype"),
    Column("min", "right"),
    Column("max", "right"),
    Column("mean", "right"),
    Column("std", "right"),
    Column("histogram"),
)

_N_BARS: Final = 10

_MANY_ZEROS: Final = 0.5
"""Share of zeros from which they are worth a note."""


def statistics_lines(
    found: Mapping[str, TensorStatistics], width: int | None, *, ascii_only: bool = False
) -> Iterator[Line]:
    """Write a row for each tensor, with a second one for what is unusual about it, and a summary."""
    rows: list[list[Line]] = []
    for each in found.values():
        rows.append(_row(each, ascii_only=ascii_only))
        rows += [[[("  ", ""), note], *[[]] * 6] for note in _notes(each)]
    yield from columns(_COLUMNS, rows, width=width)
    yield []
    bad = [name for name, each in found.items() if each.n_nan or each.n_inf]
    if bad:
        verb = "has" if len(bad) == 1 else "have"
        yield [(f"{counted(len(bad), 'tensor')} {verb} NaN or Inf: {listed(map(printable, bad), 3)}", "error")]
    else:
        yield [("no tensor has NaN or Inf", "")]


def _row(found: TensorStatistics, *, ascii_only: bool) -> list[Line]:
    numbers: list[Line] = [[(number_text(number), "")] for number in (found.min, found.max, found.mean, found.std)]
    return [
        [(printable(found.name) or '""', "")],
        [(printable(found.dtype), "dtype")],
        *numbers,
        [(sparkline(found.histogram.counts, _N_BARS, ascii_only=ascii_only), "module")],
    ]


def _notes(found: TensorStatistics) -> Iterator[Span]:
    if found.problem is not None:
        yield "not read", "warning"
    if found.n_nan or found.n_inf:
        counts = (f"{n:,} {what}" for n, what in ((found.n_nan, "NaN"), (found.n_inf, "Inf")) if n)
        yield ", ".join(counts), "error"
    if found.n_zeros and found.n_zeros >= _MANY_ZEROS * found.n_elements:
        is_all = found.n_zeros == found.n_elements
        yield ("all zeros" if is_all else f"{share_text(found.n_zeros, found.n_elements)} zeros"), "dim"


def number_text(number: float | None) -> str:
    """Write a number in at most 9 characters."""
    if number is None:
        return ""
    if isinstance(number, int) and abs(number) < 10**8:
        return str(number)
    return f"{number:.3g}"


def statistics_members(found: Mapping[str, TensorStatistics]) -> Iterator[dict[str, Any]]:
    """Return the same for JSON, which has no infinite numbers: null replaces them."""
    for each in found.values():
        members = {name: _finite(value) for name, value in msgspec.structs.asdict(each).items()}
        for name in ("histogram", "magnitudes"):
            members[name] = {
                "edges": [_finite(edge) for edge in members[name].edges],
                "counts": members[name].counts,
            }
        yield members


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value
