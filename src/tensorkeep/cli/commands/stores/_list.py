"""`tensorkeep list`: the steps of a store, whole or not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import tensorkeep
from tensorkeep.cli.inputs import AsJson, Greatest, Monitor, Store, rules_of
from tensorkeep.cli.terminal import Column, Line, Style, columns, printable, shortened, show_result, size_text
from tensorkeep.errors import SourceMissingError
from tensorkeep.texts import listed

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
    root: Store,
    *,
    monitor: Monitor = None,
    greatest: Greatest = False,
    as_json: AsJson = False,
) -> None:
    """List the steps of a CheckpointStore.

    Shows for each step its metrics, the size of its files, and how much of that is its own: steps share the files of
    tensors that did not change. Steps that are damaged, still being saved or were interrupted are marked, and never
    count as the latest or the best. Only the index and headers are checked; `tensorkeep verify` checks every byte.
    """
    steps = tensorkeep.CheckpointStore(root, **rules_of(monitor=monitor, greatest=greatest)).listing()
    if steps and monitor is not None:
        _require_metric(root, monitor, steps)
    show_result(_Steps(root, steps), as_json=as_json)


def _require_metric(root: str, monitor: str, steps: list[StepListing]) -> None:
    """Refuse a metric that no step has, and list the existing ones."""
    names = {name: None for step in steps for name in step.found.metrics}
    if monitor not in names:
        raise SourceMissingError(
            "no step has the metric",
            path=root,
            expected=f"a step with `{monitor}`",
            found=listed((f"`{name}`" for name in names), _MAX_METRICS) or "no steps with metrics",
        )


class _Steps(NamedTuple):
    """The steps of a store."""

    root: str
    steps: list[StepListing]

    def lines(self, _width: int | None) -> Iterable[Line]:
        if not self.steps:
            return [[(f"no steps in {printable(self.root)}", "dim")]]
        return columns(_COLUMNS, list(map(_row, self.steps)))

    def members(self) -> dict[str, object]:
        return {"path": self.root, "steps": map(_members, self.steps)}


def _row(step: StepListing) -> list[Line]:
    record = step.found.record
    style = _STYLES[step.found.condition]
    return [
        [(str(step.found.step), "title" if step.is_latest or step.is_best else "")],
        [(printable(record.saved_at[:19].replace("T", " ")) if record else "", "")],
        [(_metrics_text(step.found.metrics), "")],
        [(size_text(step.files.nbytes), "")],
        [(size_text(step.files.own_nbytes), "")],
        [(f"{step.files.n_shards:,}", "")],
        [(", ".join(_marks(step)), style)],
    ]


def _marks(step: StepListing) -> Iterator[str]:
    if step.found.condition != "whole":
        yield step.found.condition
    if step.is_latest:
        yield "latest"
    if step.is_best:
        yield "best"


def _metrics_text(metrics: dict[str, float]) -> str:
    texts = [
        f"{printable(shortened(name, _MAX_METRIC_CHARS))}={value:.6g}" for name, value in sorted(metrics.items())
    ]
    return listed(texts, _MAX_METRICS, " ")


def _members(step: StepListing) -> dict[str, object]:
    record = step.found.record
    metrics = {name: value if math.isfinite(value) else str(value) for name, value in step.found.metrics.items()}
    return {
        "step": step.found.step,
        "path": step.found.path,
        "condition": step.found.condition,
        "problem": step.found.problem,
        "saved_at": record.saved_at if record else None,
        "metrics": metrics,
        "nbytes": step.files.nbytes,
        "own_nbytes": step.files.own_nbytes,
        "n_shards": step.files.n_shards,
        "is_latest": step.is_latest,
        "is_best": step.is_best,
    }
