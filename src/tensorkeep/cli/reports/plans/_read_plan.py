"""What a read would cost. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tensorkeep.cli.terminal import Column, Line, columns, printable
from tensorkeep.texts import listed

if TYPE_CHECKING:
    from tensorkeep.tensors import ReadPlan
    from tensorkeep.transport import PlannedRequest


_MAX_REQUESTS: Final = 20
_MAX_RANGES: Final = 3


def plan_lines(plan: ReadPlan) -> Iterator[Line]:
    """Write the requests that a read would make."""
    yield [(str(plan), "")]
    shown = plan.requests[:_MAX_REQUESTS]
    rows: list[list[Line]] = [
        [[("  " + printable(request.path), "dim")], [(f"{request.nbytes:,}", "")], [(_ranges_text(request), "dim")]]
        for request in shown
    ]
    if rows:
        yield from columns((Column("  file"), Column("bytes", "right"), Column("ranges")), rows)
    if len(shown) < plan.n_requests:
        yield [(f"  and {plan.n_requests - len(shown):,} more", "dim")]


def _ranges_text(request: PlannedRequest) -> str:
    return listed((f"[{span.start:,}, {span.stop:,})" for span in request.ranges), _MAX_RANGES, " ")
