"""The state of a training run: out of the objects that a run consists of, and into them again.

- `_modules`: names of parameters, whatever wraps a model; what does not fit, before it is loaded.
- `_ties`: weights that a model ties, and that differ in the checkpoint; a state that is the model's own memory.
- `_memory`: tensors of a checkpoint in memory of their own.
- `_wrappers`: optimizers and schedulers that libraries wrap.
- `_optimizers`: states of torch's own, held against what they are to be loaded into.
- `_schedulers`: states of torch's own, held against what they are to be loaded into.
- `_generators`: random generators, and the states of those that are everybody's.
- `_capture`: `capture`.
- `_inert`: values that stand for objects, where an object is needed.
- `_prepare`: what is to be done to bring a state into an object, checked before any is touched; `check_fit`.
- `_saved`: the parts of a checkpoint, and their names.
- `_restore`: `restore`.
"""

from tensorkeep.training._capture import capture
from tensorkeep.training._prepare import check_fit
from tensorkeep.training._restore import restore

__all__ = [
    "capture",
    "check_fit",
    "restore",
]
