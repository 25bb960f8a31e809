"""Pytrees of JAX: training states, parameters, random keys, saved exactly and restored by a template.

    import tensorkeep.jax

    tensorkeep.jax.save(state, "step-500.safetensors")
    state = tensorkeep.jax.load("step-500.safetensors", like=state)

`save` and `load` keep any pytree in a file or a directory: dicts, lists, named tuples, dataclasses, Flax's
`TrainState` and `FrozenDict`, states and modules of `flax.nnx`, Optax states. `CheckpointStore` keeps the steps of a
run, of one process or of many. `capture` and `restore` are for code that saves by itself. These are not safetensors'
functions on bytes: `tensorkeep.flax` has those, for flat dicts of arrays.

- `_save`: `save` and `save_async`.
- `_load`: `load` and `restore`.
- `_store`: `CheckpointStore`.
- `trees/`: pytrees as plain nested data, and back.
- `meshes/`: arrays over many devices and processes: each process reads and writes its own shards.
"""

from __future__ import annotations

import tensorkeep.errors

with tensorkeep.errors.importing(jax="jax"):
    import jax  # noqa: F401 - if it is missing, the error has its install line

from tensorkeep.jax._load import load, restore
from tensorkeep.jax._save import save, save_async
from tensorkeep.jax._store import CheckpointStore
from tensorkeep.jax.trees import capture

__all__ = ["CheckpointStore", "capture", "load", "restore", "save", "save_async"]
