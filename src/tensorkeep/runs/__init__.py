"""The state of a run of any library: taken from the objects of the run, and loaded into them again.

What torch adds to it is in `training/`.

- `_actions`: changes to objects, made once all of them are known to be possible.
- `_several`: several objects as one part of a state. Pure.
- `_placeholders`: placeholders for objects that were not created.
- `_parts`: the parts of a state in a file.
- `_generators`: random generators of Python and NumPy.
- `_slots`: variables, and the arrays that fit into them.
- `_run`: `capture_run` and `restore_run`, for every library that is a `RunLibrary`.
- `torch`: torch's random generators (imports torch).
- `tensorflow_generators`: TensorFlow's random generators (imports TensorFlow).
- `keras`: Keras's models and optimizers, of any backend (imports Keras).
- `tensorflow`: TensorFlow's trackable objects (imports TensorFlow and Keras).
- `mlx`: MLX's modules and optimizers (imports MLX).
- `paddle_generators`: Paddle's random generators (imports Paddle).
- `paddle_optimizers`: Paddle's optimizers and what belongs to them (imports Paddle).
- `paddle_lbfgs`: the LBFGS of Paddle (imports Paddle).
- `paddle`: Paddle's layers and runs (imports Paddle).
"""

from tensorkeep.runs._actions import Action, apply
from tensorkeep.runs._generators import (
    HOST_GENERATORS,
    as_mismatch,
    capture_host_generator,
    capture_host_rng,
    prepare_host_generator,
    prepare_rng,
    python_state,
    type_name,
)
from tensorkeep.runs._parts import load_parts
from tensorkeep.runs._placeholders import find_placeholder, refuse_placeholders
from tensorkeep.runs._several import pairs

__all__ = [
    "HOST_GENERATORS",
    "Action",
    "apply",
    "as_mismatch",
    "capture_host_generator",
    "capture_host_rng",
    "find_placeholder",
    "load_parts",
    "pairs",
    "prepare_host_generator",
    "prepare_rng",
    "python_state",
    "refuse_placeholders",
    "type_name",
]
