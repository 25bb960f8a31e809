"""accelerate: the state of a run, saved completely or not at all; and models that are larger than memory.

- `_support`: which runs can be saved.
- `_files`: what directories hold, those of this package and accelerate's own.
- `_old`: what directories hold, those of this package and accelerate's own.
- `_loaders`: where data loaders are.
- `_processes`: all processes of a run as one.
- `_naming`: numbered checkpoints.
- `_save`: the state of a run.
- `_load`: the state of a run.
- `_accelerator`: an Accelerator that saves and loads so.
- `_match`: models larger than memory.
- `_place`: models larger than memory.
- `_offload`: models larger than memory.
- `_dispatch`: models larger than memory.
"""

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
