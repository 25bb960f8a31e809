"""Orbax's `CheckpointManager` over a `CheckpointStore`: a program changes its import, and its code stays.

    import tensorkeep.integrations.orbax as ocp  # was: import orbax.checkpoint as ocp

    with ocp.CheckpointManager("/run", options=ocp.CheckpointManagerOptions(max_to_keep=3)) as manager:
        manager.save(step, args=ocp.args.StandardSave(state))
        state = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(abstract_state))

Arguments and options of orbax itself are taken too; orbax need not be installed.

- `args`: what is saved or restored, as orbax names it.
- `checkpoint_utils`: arguments that restore like a template.
- `_leaf_args`: how one leaf is saved or restored.
- `_options`: `CheckpointManagerOptions`.
- `_background`: a save in the background.
- `_step_store`: the store of a manager, in which all processes do everything together.
- `_handlers`: handlers, which have nothing to do here.
- `_items`: what is saved and restored for arguments of either library.
- `_legacy`: `items`, as arguments.
- `_metadata`: what is known of a run and its steps beside arrays.
- `_older_steps`: steps that orbax left in the directory.
- `_manager`: `CheckpointManager`.
- `_checkpointers`: `StandardCheckpointer` and its like, without steps.
"""

import tensorkeep.errors

with tensorkeep.errors.importing(jax="jax"):
    import jax  # noqa: F401

from tensorkeep.integrations.orbax import args, checkpoint_utils
from tensorkeep.integrations.orbax._checkpointers import (
    AsyncCheckpointer,
    Checkpointer,
    PyTreeCheckpointer,
    StandardCheckpointer,
)
from tensorkeep.integrations.orbax._handlers import (
    JsonCheckpointHandler,
    PyTreeCheckpointHandler,
    StandardCheckpointHandler,
)
from tensorkeep.integrations.orbax._leaf_args import ArrayRestoreArgs, RestoreArgs, SaveArgs
from tensorkeep.integrations.orbax._manager import CheckpointManager
from tensorkeep.integrations.orbax._options import CheckpointManagerOptions

__all__ = [
    "ArrayRestoreArgs",
    "AsyncCheckpointer",
    "CheckpointManager",
    "CheckpointManagerOptions",
    "Checkpointer",
    "JsonCheckpointHandler",
    "PyTreeCheckpointHandler",
    "PyTreeCheckpointer",
    "RestoreArgs",
    "SaveArgs",
    "StandardCheckpointHandler",
    "StandardCheckpointer",
    "args",
    "checkpoint_utils",
]
