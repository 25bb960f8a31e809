"""For people who train with skorch: callbacks and functions that save a net, and bring it back, without a pickle.

    from tensorkeep.integrations.skorch import Checkpoint, LoadInitState  # was: from skorch.callbacks import …

    checkpoint = Checkpoint(dirname="run")
    net = NeuralNetClassifier(MyModule, callbacks=[checkpoint, LoadInitState(checkpoint)])

They are the callbacks of skorch with the same arguments. Module, criterion, optimizer and custom ones of both are
saved as safetensors, each with its whole state; the history as skorch saves it. A run that was interrupted goes on
as if it never had been: random generators, learning rate schedules and early stopping are saved too. All files of one
event are replaced at once, and a save that fails raises. docs/how-to/skorch.md shows it.

- `_names`: names of files, with a directory, a prefix and fields.
- `_pickle`: what can be taken out of a pickled net.
- `_files`: the files of a net, written at once, read from whatever wrote them.
- `_parts`: the parts of a net that have a state.
- `_training`: chance, schedules, patience, and what is frozen.
- `_sets`: what a callback saved, found again.
- `_nets`: nets, saved and brought back.
- `_checkpoint`, `_train_end`: the callbacks that save.
- `_resume`: the callback that goes on.
- `_functions`: what `save_params` and `load_params` of a net do, with safe files.
"""

from tensorkeep.integrations.skorch._checkpoint import Checkpoint
from tensorkeep.integrations.skorch._functions import load_params, save_params
from tensorkeep.integrations.skorch._resume import LoadInitState
from tensorkeep.integrations.skorch._train_end import TrainEndCheckpoint

__all__ = ["Checkpoint", "LoadInitState", "TrainEndCheckpoint", "load_params", "save_params"]
