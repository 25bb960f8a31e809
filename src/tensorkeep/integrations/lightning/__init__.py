"""Lightning: plugins that save and load the checkpoints of a Trainer or of Fabric.

- `_library`: both packages of Lightning, `lightning` and `pytorch_lightning`.
- `_rewriting`: nested data with some values replaced.
- `_configs`: configurations of OmegaConf converted to data, and back.
- `_values`: other objects in checkpoints converted to data, and back.
- `_pickles`: checkpoints that Lightning itself pickled.
- `_files`: checkpoint files, written, read and removed.
- `_placeholders`: placeholders for objects that were not created.
- `_links`: links to the last checkpoint.
- `_pending`: saves in the background, and removals that wait for them.
- `_plugins`: `TensorkeepCheckpointIO` and `AsyncTensorkeepCheckpointIO`.
- `_random`: `RandomState`.
- `_modules`: `load_from_checkpoint`.
"""

import tensorkeep.errors

with tensorkeep.errors.importing(torch='"tensorkeep[torch]"'):
    import torch  # noqa: F401

from tensorkeep.integrations.lightning._modules import load_from_checkpoint
from tensorkeep.integrations.lightning._plugins import AsyncTensorkeepCheckpointIO, TensorkeepCheckpointIO
from tensorkeep.integrations.lightning._random import RandomState

__all__ = [
    "AsyncTensorkeepCheckpointIO",
    "RandomState",
    "TensorkeepCheckpointIO",
    "load_from_checkpoint",
]
