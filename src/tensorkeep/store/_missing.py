"""What is said of a step that was asked for and is not there: which ones are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from tensorkeep.errors import SourceMissingError, UnsupportedError
from tensorkeep.phrases import listed
from tensorkeep.store._steps import StepReader, whole_metrics

_N_LISTED: Final = 10


def check_name(step: Any, steps: StepReader) -> None:
    """Make sure that what is to be loaded is no text but one that stands for a step."""
    if isinstance(step, str):
        raise UnsupportedError(
            "no number of a step",
            path=steps.root,
            expected='a number, "latest" or "best"',
            found=repr(step),
            hint=_whole(steps),
        )


@contextmanager
def naming_steps(steps: StepReader) -> Iterator[None]:
    """Say which steps there are where the block finds that one is not."""
    try:
        yield
    except SourceMissingError as error:
        raise error.with_fields(hint=_whole(steps)).numbered(error.errno) from error.__cause__


def refuse_metric(steps: StepReader, monitor: str) -> NoReturn:
    """Say that no step is the best, and by which metrics one could be."""
    metrics = {name: None for each in _metrics(steps).values() for name in each}
    raise SourceMissingError(
        "no step has the metric",
        path=steps.root,
        expected=f"one with `{monitor}`",
        found=listed((f"`{name}`" for name in metrics), _N_LISTED) or "steps without metrics, or none at all",
        hint="Open the store with monitor= one of these" if metrics else None,
    )


def _whole(steps: StepReader) -> str:
    whole = listed(map(str, reversed(_metrics(steps))), _N_LISTED)
    return f"Whole steps, the highest first: {whole}" if whole else "There are no whole steps"


def _metrics(steps: StepReader) -> Mapping[int, Mapping[str, float]]:
    return whole_metrics(steps.survey())
