"""For people who train with skorch: callbacks and functions that save a net, and bring it back, without a pickle.

- `_names`: names of files, with a directory, a prefix and fields.
- `_pickle`: what can be taken out of a pickled net.
- `_files`: the files of a net, written at once, read from whatever wrote them.
- `_parts`: the parts of a net that have a state.
- `_training`: chance, schedules, patience, and what is frozen.
- `_sets`: what a callback saved, found again.
- `_nets`: nets, saved and brought back.
- `_checkpoint`: the callbacks that save.
- `_train_end`: the callbacks that save.
- `_resume`: the callback that goes on.
- `_functions`: what `save_params` and `load_params` of a net do, with safe files.
"""

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
