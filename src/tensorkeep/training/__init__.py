"""The state of a training run: taken from the objects of the run, and loaded into them again.

- `_wrappers`: optimizers and schedulers inside wrappers of other libraries.
- `_modules`: state dicts of modules, under the same names whatever wraps the module.
- `_memory`: loaded tensors moved into memory of their own.
- `_optimizers`: states of torch's optimizers, checked before they are loaded.
- `_schedulers`: states of torch's schedulers, checked before they are loaded.
- `_generators`: random generators and their states.
- `_capture`: `capture`.
- `_prepare`: check a state first, load it later; `check_fit`.
- `_restore`: `restore`.
"""

from tensorkeep.training._capture import capture
from tensorkeep.training._generators import GENERATORS, rng_of
from tensorkeep.training._prepare import check_fit
from tensorkeep.training._restore import restore

__all__ = [
    "GENERATORS",
    "capture",
    "check_fit",
    "restore",
    "rng_of",
]
