"""For people who train with Lightning: plugins that save and load the checkpoints of a Trainer or of Fabric.

- `_library`: the copies of Lightning that are installed.
- `_rewriting`: nested data with other values in some places.
- `_configs`: configurations of OmegaConf as data, and back.
- `_values`: all that checkpoints hold beside plain data, as data, and back.
- `_pickles`: what Lightning's own checkpoints hold.
- `_files`: checkpoints written, read and removed.
- `_placeholders`: values that stand for an object which was not created.
- `_links`: links to the last checkpoint.
- `_pending`: saves in the background, and what is to be removed when they are written.
- `_plugins`: the plugins.
- `_plateau`: metrics that learning rate schedules are still to see.
- `_random`: the callback.
- `_modules`: modules and data modules, made again.
"""

from tensorkeep.integrations.lightning._modules import load_from_checkpoint
from tensorkeep.integrations.lightning._plugins import AsyncTensorkeepCheckpointIO, TensorkeepCheckpointIO
from tensorkeep.integrations.lightning._random import RandomState

__all__ = [
    "AsyncTensorkeepCheckpointIO",
    "RandomState",
    "TensorkeepCheckpointIO",
    "load_from_checkpoint",
]
