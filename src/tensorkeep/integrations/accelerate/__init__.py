"""accelerate: the state of a run, saved completely or not at all; and models that are larger than memory.

- `_files`: the files that `save_state` writes.
- `_old`: directories of accelerate's own `save_state`.
- `_loaders`: the positions of data loaders.
- `_processes`: all processes of a run as one.
- `_naming`: numbered checkpoints.
- `_bucket`: the state of a run in a bucket.
- `_save`: `save_state` and `save_model`.
- `_load`: `load_state`.
- `_accelerator`: `Accelerator` and `keep_safe`.
- `_match`: which tensor of a checkpoint goes into which tensor of a model.
- `_place`: loading each part of a checkpoint on its device.
- `_offload`: weights that stay in the checkpoint until a module needs them.
- `_dispatch`: `load_checkpoint_and_dispatch` and `load_checkpoint_in_model`.
"""

import tensorkeep.errors

with tensorkeep.errors.importing(accelerate="accelerate", torch='"tensorkeep[torch]"'):
    import accelerate  # noqa: F401
    import torch  # noqa: F401

from tensorkeep.integrations.accelerate._accelerator import Accelerator, keep_safe
from tensorkeep.integrations.accelerate._dispatch import load_checkpoint_and_dispatch, load_checkpoint_in_model
from tensorkeep.integrations.accelerate._offload import OffloadedWeights
from tensorkeep.integrations.accelerate._save import IncompleteStateWarning
from tensorkeep.store import DamagedCheckpointWarning

__all__ = [
    "Accelerator",
    "DamagedCheckpointWarning",
    "IncompleteStateWarning",
    "OffloadedWeights",
    "keep_safe",
    "load_checkpoint_and_dispatch",
    "load_checkpoint_in_model",
]
