"""The corpus of hostile pickles: what each tries, its bytes, and what must come of it."""

from __future__ import annotations

from tests.support.pickles.hostile_calls import CALLS
from tests.support.pickles.hostile_case import COMMAND, MARKER, Hostile
from tests.support.pickles.hostile_changes import CHANGES
from tests.support.pickles.hostile_streams import STREAMS
from tests.support.pickles.hostile_tensors import TENSORS

__all__ = ["COMMAND", "HOSTILE", "MARKER", "Hostile"]

HOSTILE: tuple[Hostile, ...] = (*CALLS, *CHANGES, *TENSORS, *STREAMS)
