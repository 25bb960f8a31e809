"""`tensorkeep inspect`: what is in a file, from its header alone."""

from __future__ import annotations

from typing import Annotated

import typer

from tensorkeep.cli._json import json_lines
from tensorkeep.cli._modules import tree_of
from tensorkeep.cli._render import draws_ascii_only, show, show_text
from tensorkeep.cli._report import Order, Report, report_on
from tensorkeep.cli._views import ASCII_GUIDES, GUIDES, summary, table, totals, tree
from tensorkeep.collector import PausedCollector
from tensorkeep.formats.safetensors import read_header
from tensorkeep.transport import open_source

__all__ = ["inspect"]


def inspect(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A safetensors file.", show_default=False)],
    *,
    flat: Annotated[bool, typer.Option("--flat", help="One row per tensor, with its place in the file.")] = False,
    expand: Annotated[bool, typer.Option("--expand", help="Show layers of equal content one by one.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="All of it as JSON, one tensor per line.")] = False,
    pattern: Annotated[
        str | None,
        typer.Option("--filter", metavar="GLOB", help="Only tensors of matching full names, such as '*.bias'."),
    ] = None,
    order: Annotated[
        Order | None, typer.Option("--sort", help="By default the tree is sorted by name, lists by offset.")
    ] = None,
) -> None:
    """Show the tensors of a file: shapes, dtypes, sizes, totals, metadata and alignment.

    Reads the header and nothing else. Names are split at dots into modules; numbered modules of equal content
    are folded into one row such as 0..11 (12x), whose counts, sizes and shares are those of all 12.
    Sizes are decimal: 1 MB is 1,000,000 bytes.
    """
    with PausedCollector():
        report = _report(path, pattern, order)
        if as_json:
            show_text(json_lines(report))
            return
        show(summary(report))
        show([[]])
        if flat:
            show(table(report))
        else:
            branches = tree_of(report.shown, order=order or Order.NAME, folds=not expand)
            show(tree(branches, report.whole.nbytes, ASCII_GUIDES if draws_ascii_only() else GUIDES))
        show([[]])
        show(totals(report))


def _report(path: str, pattern: str | None, order: Order | None) -> Report:
    source = open_source(path)
    try:
        header = read_header(source)
        return report_on(header, path=path, file_nbytes=source.nbytes, pattern=pattern, order=order or Order.OFFSET)
    finally:
        source.close()
