"""accelerate: the state of a run, saved completely or not at all; and models that are larger than memory.

One line changes how an `Accelerator` saves and loads; the rest of a program stays as it is:

    from tensorkeep.integrations.accelerate import Accelerator

    accelerator = Accelerator()

or, for one that somebody else made:

    accelerator = tensorkeep.integrations.accelerate.keep_safe(accelerator)

`save_state`, `load_state`, `save_model` and `skip_first_batches` then go through this package. Functions of their own
are `load_checkpoint_and_dispatch` and `load_checkpoint_in_model`, which take what accelerate's take.

- `_support`: which runs can be saved.
- `_files`, `_old`: what directories hold, those of this package and accelerate's own.
- `_loaders`: where data loaders are.
- `_processes`: all processes of a run as one.
- `_naming`: numbered checkpoints.
- `_save`, `_load`: the state of a run.
- `_accelerator`: an Accelerator that saves and loads so.
- `_match`, `_place`, `_offload`, `_dispatch`: models larger than memory.
"""

from tensorkeep.integrations.accelerate._accelerator import Accelerator, keep_safe
from tensorkeep.integrations.accelerate._dispatch import load_checkpoint_and_dispatch, load_checkpoint_in_model
from tensorkeep.integrations.accelerate._naming import DamagedCheckpointWarning
from tensorkeep.integrations.accelerate._offload import OffloadedWeights
from tensorkeep.integrations.accelerate._save import IncompleteStateWarning

__all__ = [
    "Accelerator",
    "DamagedCheckpointWarning",
    "IncompleteStateWarning",
    "OffloadedWeights",
    "keep_safe",
    "load_checkpoint_and_dispatch",
    "load_checkpoint_in_model",
]
