"""The metadata of a step in its shard index: number, metrics and time. Pure.

    "tensorkeep_store": {"metrics": {"valid_loss": 0.25, "lr": "nan"},
                         "saved_at": "2027-01-31T12:00:00.000000+00:00", "step": 500}

Numbers that JSON does not have are written as text: `"nan"`, `"inf"` and `"-inf"`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec

from tensorkeep.errors import StateError
from tensorkeep.layout import STEP_KEY
from tensorkeep.store.places._names import MAX_STEP


class StepRecord(msgspec.Struct, frozen=True):
    """Metadata of a step.

    Attributes:
        step: Its number.
        metrics: Metric name to value.
        saved_at: When the save began, as ISO 8601 in UTC to the microsecond, so that texts sort as times do.
    """

    step: int
    metrics: dict[str, float]
    saved_at: str


class _Text(msgspec.Struct, frozen=True):
    """A record as written in the index."""

    step: Annotated[int, msgspec.Meta(ge=0, lt=MAX_STEP)]
    metrics: dict[str, float | Literal["nan", "inf", "-inf"]]
    saved_at: Annotated[datetime, msgspec.Meta(tz=True)]


def metrics_of(given: Mapping[str, Any] | None) -> dict[str, float]:
    """Check metrics, and return them as plain numbers."""
    if given is not None and not isinstance(given, Mapping):
        raise StateError(
            "metrics are not a dict", expected='a dict such as {"valid_loss": 0.25}', found=f"{given!r:.100}"
        )
    return {_checked_name(name): _number(name, value) for name, value in (given or {}).items()}


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name.isprintable():
        raise StateError("the name of a metric is not text", expected="printable text", found=repr(name))
    return name


def _number(name: str, value: Any) -> float:
    refusal = StateError(
        f"the metric `{name}` is not a number", expected="one number", found=f"{value!r} ({type(value).__name__})"
    )
    if isinstance(value, str | bytes | bytearray):
        raise refusal
    try:
        return float(value.detach() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise refusal from None


def time_text(time: datetime) -> str:
    """Return a time as written in a record."""
    return time.astimezone(UTC).isoformat(timespec="microseconds")


def later_than(newest: str | None, time: str) -> str:
    """Return the time for a new step: later than the newest one even if the clock was set back."""
    if newest is None or newest < time:
        return time
    try:
        return time_text(datetime.fromisoformat(newest) + timedelta(microseconds=1))
    except OverflowError:  # the end of the year 9999, which another program must have written
        return newest


def record_members(record: StepRecord) -> dict[str, Any]:
    """Return the members that a record adds to the index."""
    metrics = {name: value if math.isfinite(value) else str(value) for name, value in record.metrics.items()}
    return {STEP_KEY: {"metrics": metrics, "saved_at": record.saved_at, "step": record.step}}


def read_record(metadata: Mapping[str, Any]) -> StepRecord | None:
    """Return the record in an index, or None if it has none that is valid."""
    try:
        text = msgspec.convert(metadata.get(STEP_KEY), _Text)
        saved_at = time_text(text.saved_at)
    except (msgspec.ValidationError, OverflowError):
        return None
    return StepRecord(text.step, {name: float(value) for name, value in text.metrics.items()}, saved_at)
