"""Keras: a callback that saves a run in a store while it trains, and continues it.

- `_checkpoint`: `StoreCheckpoint`.
"""

import tensorkeep.errors

with tensorkeep.errors.importing(keras="keras"):
    import keras  # noqa: F401

from tensorkeep.integrations.keras._checkpoint import Position, StoreCheckpoint

__all__ = ["Position", "StoreCheckpoint"]
