"""`tensorkeep inspect`: what is in a file or a checkpoint, from its headers alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

import tensorkeep
from tensorkeep.cli.inputs import Engine, KeyOptions, Target, TrustedBy, Variant, libraries, tensor_names
from tensorkeep.cli.reports import (
    ASCII_GUIDES,
    GUIDES,
    Order,
    Report,
    inspect_lines,
    memory_lines,
    nothing,
    rank_lines,
    read_ranks,
    read_report,
    state_lines,
    statistics_lines,
    summary,
    table,
    totals,
    tree,
    tree_of,
)
from tensorkeep.cli.terminal import Line, draws_ascii_only, progress_bar, show, show_text, terminal_width
from tensorkeep.collector import PausedCollector

if TYPE_CHECKING:
    from tensorkeep.encryption import Key
    from tensorkeep.measuring import TensorStatistics


def inspect(
    path: Target,
    *,
    flat: Annotated[
        bool, typer.Option("--flat", help="List tensors, one per row, with their place in the file.")
    ] = False,
    expand: Annotated[bool, typer.Option("--expand", help="Show equal layers one by one.")] = False,
    all_state: Annotated[
        bool, typer.Option("--state", help="Show all values of a state that are not tensors.")
    ] = False,
    stats: Annotated[
        bool, typer.Option("--stats", help="Read all numbers, and show extremes, spread, NaNs and histograms.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON, one tensor per line.")] = False,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--filter",
            metavar="GLOB",
            help="Only tensors whose full names match, such as '*.bias'.",
            autocompletion=tensor_names,
        ),
    ] = None,
    order: Annotated[
        Order | None,
        typer.Option(
            "--sort",
            metavar="name|size|offset",
            help="The order. By default, name for the tree and offset for lists.",
        ),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option("--ranks", metavar="N", min=1, max=100_000, help="Show what each of N ranks would read."),
    ] = None,
    dim: Annotated[
        int, typer.Option("--dim", metavar="D", min=0, help="With --ranks: the dimension to cut tensors along.")
    ] = 0,
    framework: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="LIBRARY",
            help="Show which tensors a library such as jax would share or copy.",
            autocompletion=libraries,
        ),
    ] = None,
    variant: Variant = None,
    engine: Engine = None,
    trust: TrustedBy = None,
    key: KeyOptions,
) -> None:
    """Show what is in a checkpoint.

    Names, shapes, dtypes, sizes, totals, metadata and alignment are read from headers alone.

    Names are split at dots or slashes into modules; numbered modules with equal content are folded into one row such
    as 0..11 (12x), whose counts, sizes and shares are totals of all 12.
    Tensors that share memory with others have no bytes of their own. In a training state, numbers, text and other
    values that are not tensors come last.
    Sizes are decimal: 1 MB is 1,000,000 bytes.

    With --stats, every number is read: extremes, mean, standard deviation, a histogram from min to max, and which
    tensors have NaNs, infinities, or mostly zeros.

    With --ranks N: what each of N ranks would read if every tensor is cut into N parts along dimension 0 (--dim D),
    as FSDP does; neighboring parts are read together.

    With --for LIBRARY: whether each tensor would share the memory of the mapped file, be copied, converted or
    refused, and why.
    """
    keys = key.keys()
    other = _other_view(path, variant, engine, trust, keys, framework, ranks, dim)
    if other is not None:
        option, lines = other
        _refuse_with(option, flat=flat, expand=expand, json=as_json, filter=pattern, sort=order, stats=stats)
        show(lines)
        return
    if as_json:
        _refuse_views(flat=flat, expand=expand)
    with PausedCollector():
        report = read_report(
            path,
            variant=variant,
            engine=engine,
            trust=trust,
            keys=keys,
            pattern=pattern,
            order=order or Order.OFFSET,
        )
        measured = _measured(path, variant, engine, trust, keys, report) if stats else None
        if as_json:
            show_text(inspect_lines(report, pattern, measured))
            return
        guides = ASCII_GUIDES if draws_ascii_only() else GUIDES
        width = terminal_width()
        show(summary(report, width))
        show([[]])
        data: list[Line] = []
        if report.state is not None:
            data += state_lines(report.state, guides, pattern=pattern, shows_all=all_state, width=width)
        if report.shown:
            if measured is not None:
                show(statistics_lines(measured, width, ascii_only=draws_ascii_only()))
            elif flat:
                show(table(report, width))
            else:
                placed = report.in_a_row() if order is Order.OFFSET else report.shown
                branches = tree_of(placed, order=order or Order.NAME, folds=not expand, note_of=report.note_of)
                show(tree(branches, report.whole.nbytes, guides, width))
            show([[]])
            show(totals(report))
        elif not data:
            show([nothing(report, pattern)])
        if report.shown and data:
            show([[]])
        show(data)


def _measured(
    path: str, variant: str | None, engine: str | None, trust: str | None, keys: list[Key] | None, report: Report
) -> dict[str, TensorStatistics]:
    """Read the tensors that are shown, in the order in which they are."""
    whole_of = {piece: whole for whole, pieces in report.splits.items() for piece in pieces}
    place_of = {whole_of.get(name, name): place for place, name in enumerate(report.shown)}
    with (
        tensorkeep.open(path, variant=variant, dangerous="record", engine=engine, trust=trust, key=keys) as opened,
        progress_bar("measuring") as progress,
    ):
        shown = {name: lazy for name, lazy in opened.items() if name in place_of}
        found = tensorkeep.statistics(shown, progress=progress)
    return {name: found[name] for name in sorted(found, key=place_of.__getitem__)}


def _other_view(
    path: str,
    variant: str | None,
    engine: str | None,
    trust: str | None,
    keys: list[Key] | None,
    framework: str | None,
    ranks: int | None,
    dim: int,
) -> tuple[str, Iterator[Line]] | None:
    """Return the option that asks for something else than the contents, and what it shows; None without one."""
    if ranks is not None:
        if framework is not None:
            raise typer.BadParameter("it does not apply to --ranks", param_hint="'--for'")
        return "--ranks", rank_lines(path, read_ranks(path, variant, trust, keys, ranks, dim), dim)
    if framework is None:
        return None
    with tensorkeep.open(path, variant=variant, dangerous="record", engine=engine, trust=trust, key=keys) as opened:
        opened.require_names()
        return "--for", memory_lines(path, framework, opened.explain(framework))


def _refuse_with(option: str, **given: object) -> None:
    for name, value in given.items():
        if value:
            raise typer.BadParameter(f"it does not apply to {option}", param_hint=f"'--{name}'")


def _refuse_views(*, flat: bool, expand: bool) -> None:
    for name, is_given in (("--flat", flat), ("--expand", expand)):
        if is_given:
            raise typer.BadParameter("it does not apply to --json", param_hint=f"'{name}'")
