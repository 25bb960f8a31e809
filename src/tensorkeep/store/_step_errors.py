"""Errors for steps that do not exist; they list the ones that do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tensorkeep.errors import SourceMissingError, UnsupportedError
from tensorkeep.store._retention import Retention, best_steps
from tensorkeep.store._steps import StepReader, whole_metrics
from tensorkeep.texts import listed

_N_LISTED = 10


def check_step_argument(step: Any, steps: StepReader) -> None:
    """Refuse text that does not name a step."""
    if isinstance(step, str):
        raise UnsupportedError(
            "not the number of a step",
            path=steps.place.root,
            expected='a number, "latest" or "best"',
            found=repr(step),
            hint=_whole_steps(steps),
        )


@contextmanager
def listing_steps(steps: StepReader) -> Iterator[None]:
    """List the existing steps in an error about a missing one."""
    try:
        yield
    except SourceMissingError as error:
        raise error.with_fields(hint=_whole_steps(steps)).numbered(error.errno) from error.__cause__


def best_step(steps: StepReader, rules: Retention) -> int:
    """Return the best step; if none has the metric, say which metrics there are."""
    found = whole_metrics(steps.survey())
    for best in best_steps(found, rules.monitor, rules.mode):
        return best
    metrics = {name: None for step_metrics in found.values() for name in step_metrics}
    raise SourceMissingError(
        "no step has the metric",
        path=steps.place.root,
        expected=f"a step with `{rules.monitor}`",
        found=listed((f"`{name}`" for name in metrics), _N_LISTED) or "no steps with metrics",
        hint="Open the store with monitor= one of these" if metrics else None,
    )


def _whole_steps(steps: StepReader) -> str:
    numbers = reversed(whole_metrics(steps.survey()))
    text = listed(numbers, _N_LISTED)
    return f"Whole steps, the highest first: {text}" if text else "There are no whole steps"
