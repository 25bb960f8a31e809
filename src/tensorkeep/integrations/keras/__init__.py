"""Keras: a callback that saves a run in a store while it trains, and continues it.

- `_checkpoint`: `StoreCheckpoint`.
"""

import tensorkeep.keras  # noqa: F401 - first: its error says what to install
from tensorkeep.integrations.keras._checkpoint import Position, StoreCheckpoint

__all__ = ["Position", "StoreCheckpoint"]
