"""`tensorkeep list`: the steps of a store, those that are whole and those that are not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

import tensorkeep
from tensorkeep.cli.inputs import AsJson
from tensorkeep.cli.reports import document_lines
from tensorkeep.cli.terminal import Column, Line, Style, columns, printable, shortened, show, show_text, size_text
from tensorkeep.phrases import listed

if TYPE_CHECKING:
    from tensorkeep.store import Condition, StepListing


_MAX_METRICS: Final = 6
_MAX_METRIC_CHARS: Final = 32

_STYLES: Final[dict[Condition, Style]] = {
    "whole": "",
    "damaged": "error",
    "incomplete": "warning",
    "foreign": "warning",
    "unreadable": "error",
}

_COLUMNS: Final = (
    Column("step", "right"),
    Column("saved at"),
    Column("metrics"),
    Column("size", "right"),
    Column("own", "right"),
    Column("shards", "right"),
    Column(""),
)


def list_steps(
    root: Annotated[str, typer.Argument(metavar="ROOT", help="The directory of a store.", show_default=False)],
    *,
    monitor: Annotated[
        str, typer.Option("--monitor", metavar="NAME", help="The metric that says which step is best.")
    ] = "valid_loss",
    greatest: Annotated[bool, typer.Option("--max", help="The greatest is best, not the least.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the steps of a CheckpointStore.

    For each its metrics, the size of its files, and how much of that is its own: files of tensors that did not change
    are shared by several steps. Steps that are damaged, or whose save is under way or was interrupted, are listed as
    such; they never count as the latest or the best. Index and headers are checked; tensorkeep verify checks all.
    """
    found = tensorkeep.CheckpointStore(root, monitor=monitor, mode="max" if greatest else "min").listing()
    if as_json:
        show_text(document_lines({"path": root, "steps": map(_members, found)}))
    elif found:
        show(columns(_COLUMNS, [_row(each) for each in found]))
    else:
        show([[(f"no steps in {printable(root)}", "dim")]])


def _row(each: StepListing) -> list[Line]:
    record = each.found.record
    style = _STYLES[each.found.condition]
    return [
        [(str(each.found.step), "title" if each.is_latest or each.is_best else "")],
        [(printable(record.saved_at[:19].replace("T", " ")) if record else "", "")],
        [(_metrics_text(each.found.metrics), "")],
        [(size_text(each.files.nbytes), "")],
        [(size_text(each.files.own_nbytes), "")],
        [(f"{each.files.n_shards:,}", "")],
        [(", ".join(_marks(each)), style)],
    ]


def _marks(each: StepListing) -> Iterator[str]:
    if each.found.condition != "whole":
        yield each.found.condition
    if each.is_latest:
        yield "latest"
    if each.is_best:
        yield "best"


def _metrics_text(metrics: dict[str, float]) -> str:
    texts = [
        f"{printable(shortened(name, _MAX_METRIC_CHARS))}={value:.6g}" for name, value in sorted(metrics.items())
    ]
    return listed(texts, _MAX_METRICS, " ")


def _members(each: StepListing) -> dict[str, object]:
    record = each.found.record
    metrics = {name: value if math.isfinite(value) else str(value) for name, value in each.found.metrics.items()}
    return {
        "step": each.found.step,
        "path": each.found.path,
        "condition": each.found.condition,
        "problem": each.found.problem,
        "saved_at": record.saved_at if record else None,
        "metrics": metrics,
        "nbytes": each.files.nbytes,
        "own_nbytes": each.files.own_nbytes,
        "n_shards": each.files.n_shards,
        "is_latest": each.is_latest,
        "is_best": each.is_best,
    }
