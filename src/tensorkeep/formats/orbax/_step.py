"""`_CHECKPOINT_METADATA`: whether a checkpoint was finished, and what was saved beside it. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from tensorkeep.formats.orbax._tree import check_depth, parse_json


class Step(msgspec.Struct, frozen=True):
    """What a checkpoint says of itself.

    Attributes:
        item_handlers: Name of each item to the class that wrote it; or the class, if there is a single item.
        metrics: Name to number.
        init_timestamp_nsecs: When its writer began, in nanoseconds since 1970; None in old checkpoints.
        commit_timestamp_nsecs: When it was complete; None if it never was.
        custom_metadata: What the user saved with it, as JSON values.
    """

    item_handlers: Any = None
    metrics: Any = None
    init_timestamp_nsecs: int | None = None
    commit_timestamp_nsecs: int | None = None
    custom_metadata: Any = None

    @property
    def is_unfinished(self) -> bool:
        """Whether a writer began it and never completed it."""
        return self.init_timestamp_nsecs is not None and self.commit_timestamp_nsecs is None

    @property
    def text(self) -> str:
        """What is worth keeping, as JSON; empty if nothing is."""
        kept = {key: value for key, value in msgspec.structs.asdict(self).items() if value not in (None, {}, [])}
        return msgspec.json.encode(kept).decode() if kept else ""


def parse_step(data: bytes) -> Step:
    """Parse `_CHECKPOINT_METADATA`."""
    step: Step = parse_json(data, Step)
    check_depth([step.item_handlers, step.metrics, step.custom_metadata])
    return step
