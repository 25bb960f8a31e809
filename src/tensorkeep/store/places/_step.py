"""A step of a store, and what is known of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from tensorkeep.store.places._record import StepRecord

Condition = Literal["whole", "damaged", "incomplete", "foreign", "unreadable"]
"""`whole`: the shard index and all headers are as saved, and all files have their size. `damaged`: they are not.
`incomplete`: a save is in progress or was interrupted. `foreign`: not written by a store. `unreadable`: this version,
or this user, cannot read it."""

Identity = tuple[object, ...]
"""A value that changes when any file of a step does."""


class Step(msgspec.Struct, frozen=True):
    """A step in a store.

    Attributes:
        step: Its number.
        path: Its directory.
        condition: Whether it is whole, and if not, why.
        record: Its number, metrics and time, or None if they cannot be read.
        problem: What is wrong with it, or None.
    """

    step: int
    path: str
    condition: Condition
    record: StepRecord | None = None
    problem: str | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """Metric name to value; empty if they cannot be read."""
        return dict(self.record.metrics) if self.record else {}


class StepFiles(msgspec.Struct, frozen=True):
    """The size of a step's files.

    Attributes:
        nbytes: Bytes of all of them.
        own_nbytes: Bytes that removing the step would free, in files that no other step shares.
        n_shards: Number of files with tensors.
    """

    nbytes: int
    own_nbytes: int
    n_shards: int


class Examined(msgspec.Struct, frozen=True):
    """What was found by looking into a step.

    Attributes:
        found: The step.
        identity: Of the files that were looked at; None if they changed meanwhile.
    """

    found: Step
    identity: Identity | None
