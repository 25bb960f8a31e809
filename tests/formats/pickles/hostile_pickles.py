"""The corpus of hostile pickles: what each tries, its bytes, and what must come of it."""

from __future__ import annotations

from hostile_calls import CALLS
from hostile_case import COMMAND, MARKER, Hostile
from hostile_changes import CHANGES
from hostile_streams import STREAMS
from hostile_tensors import TENSORS

__all__ = ["COMMAND", "HOSTILE", "MARKER", "Hostile"]

HOSTILE: tuple[Hostile, ...] = (*CALLS, *CHANGES, *TENSORS, *STREAMS)
