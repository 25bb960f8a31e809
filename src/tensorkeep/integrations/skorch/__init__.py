"""skorch: callbacks and functions that save a net, and load it, without pickles.

- `_names`: file names with a directory, a prefix and fields.
- `_pickle`: the data in a pickled net.
- `_files`: the files of a net, written all at once.
- `_parts`: the parts of a net that have a state.
- `_training`: what else a run needs to continue: generators, callbacks, frozen parameters.
- `_sets`: finding what a callback saved.
- `_nets`: saving and loading nets.
- `_steps`: saves to the URL of a directory, as steps of a store.
- `_checkpoint`: `Checkpoint`.
- `_train_end`: `TrainEndCheckpoint`.
- `_resume`: `LoadInitState`.
- `_functions`: `save_params` and `load_params`.
"""

import tensorkeep.errors

with tensorkeep.errors.importing(skorch="skorch", torch='"tensorkeep[torch]"'):
    import skorch  # noqa: F401
    import torch  # noqa: F401

from tensorkeep.integrations.skorch._checkpoint import Checkpoint
from tensorkeep.integrations.skorch._functions import load_params, save_params
from tensorkeep.integrations.skorch._resume import LoadInitState
from tensorkeep.integrations.skorch._train_end import TrainEndCheckpoint

__all__ = [
    "Checkpoint",
    "LoadInitState",
    "TrainEndCheckpoint",
    "load_params",
    "save_params",
]
