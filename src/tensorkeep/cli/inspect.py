"""`tensorkeep inspect`: what is in a file or a checkpoint, from headers alone."""

from __future__ import annotations

from typing import Annotated

import typer

from tensorkeep.cli._arguments import Target, Variant
from tensorkeep.cli._contents import read_report
from tensorkeep.cli._json import json_lines
from tensorkeep.cli._modules import tree_of
from tensorkeep.cli._render import draws_ascii_only, show, show_text, terminal_width
from tensorkeep.cli._report import Order
from tensorkeep.cli._views import ASCII_GUIDES, GUIDES, nothing, summary, table, totals, tree
from tensorkeep.collector import PausedCollector

__all__ = ["inspect"]


def inspect(
    path: Target,
    *,
    flat: Annotated[bool, typer.Option("--flat", help="One row per tensor, with its place in the file.")] = False,
    expand: Annotated[bool, typer.Option("--expand", help="Show layers of equal content one by one.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="All of it as JSON, one tensor per line; has no views.")
    ] = False,
    pattern: Annotated[
        str | None,
        typer.Option("--filter", metavar="GLOB", help="Only tensors of matching full names, such as '*.bias'."),
    ] = None,
    order: Annotated[
        Order | None, typer.Option("--sort", help="By default the tree is sorted by name, lists by offset.")
    ] = None,
    variant: Variant = None,
) -> None:
    """Show what is in a checkpoint.

    That is names, shapes, dtypes, sizes, totals, metadata and alignment, from headers alone.

    Names are split at dots into modules; numbered modules of equal content are folded into one row such as
    0..11 (12x), whose counts, sizes and shares are those of all 12.
    Sizes are decimal: 1 MB is 1,000,000 bytes.
    """
    if as_json:
        _refuse_views(flat=flat, expand=expand)
    with PausedCollector():
        report = read_report(path, variant=variant, pattern=pattern, order=order or Order.OFFSET)
        if as_json:
            show_text(json_lines(report))
            return
        show(summary(report))
        show([[]])
        if not report.shown:
            show([nothing(report, pattern)])
            return
        if flat:
            show(table(report, terminal_width()))
        else:
            placed = report.in_a_row() if order is Order.OFFSET else report.shown
            branches = tree_of(placed, order=order or Order.NAME, folds=not expand)
            guides = ASCII_GUIDES if draws_ascii_only() else GUIDES
            show(tree(branches, report.whole.nbytes, guides, terminal_width()))
        show([[]])
        show(totals(report))


def _refuse_views(*, flat: bool, expand: bool) -> None:
    for name, is_given in (("--flat", flat), ("--expand", expand)):
        if is_given:
            raise typer.BadParameter("it is a view for people, and --json has none", param_hint=f"'{name}'")
