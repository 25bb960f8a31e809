"""Orbax's `CheckpointManager` over a `CheckpointStore`: a program changes its import, and its code stays.

    import tensorkeep.integrations.orbax as ocp  # was: import orbax.checkpoint as ocp

    with ocp.CheckpointManager("/run", options=ocp.CheckpointManagerOptions(max_to_keep=3)) as manager:
        manager.save(step, args=ocp.args.StandardSave(state))
        state = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(abstract_state))

Arguments and options of orbax itself are taken too; orbax need not be installed.

- `args`: what is saved or restored, as orbax names it.
- `checkpoint_utils`: arguments that restore like a template.
- `templates`: descriptions of arrays, as `utils` of orbax has them.
- `options`: `AsyncOptions` and `MultiprocessingOptions`.
- `_options`: `CheckpointManagerOptions`.
- `_background`: a save in the background.
- `_step_store`: the store of a manager, in which all processes do everything together.
- `_handlers`: handlers, which have nothing to do here.
- `_older_steps`: steps that orbax left in the directory, and their items as programs saved them.
- `leaves/`: how one leaf is saved and restored, what is known of it, and where it was.
- `_items`: what is saved and restored for arguments of either library.
- `_legacy`: `items`, as arguments.
- `_metadata`: what is known of a run and its steps beside arrays.
- `_manager`: `CheckpointManager`.
- `_checkpointers`: `StandardCheckpointer` and its like, without steps.
"""

import tensorkeep.errors

with tensorkeep.errors.importing(jax="jax"):
    import jax  # noqa: F401

from tensorkeep.integrations.orbax import args, checkpoint_utils, options
from tensorkeep.integrations.orbax import templates as utils
from tensorkeep.integrations.orbax._checkpointers import (
    AsyncCheckpointer,
    Checkpointer,
    PyTreeCheckpointer,
    StandardCheckpointer,
)
from tensorkeep.integrations.orbax._handlers import (
    ArrayCheckpointHandler,
    CompositeCheckpointHandler,
    JaxRandomKeyCheckpointHandler,
    JsonCheckpointHandler,
    NumpyRandomKeyCheckpointHandler,
    PyTreeCheckpointHandler,
    StandardCheckpointHandler,
)
from tensorkeep.integrations.orbax._manager import CheckpointManager
from tensorkeep.integrations.orbax._options import CheckpointManagerOptions
from tensorkeep.integrations.orbax.leaves import ArrayRestoreArgs, RestoreArgs, SaveArgs
from tensorkeep.integrations.orbax.options import AsyncOptions

__all__ = [
    "ArrayCheckpointHandler",
    "ArrayRestoreArgs",
    "AsyncCheckpointer",
    "AsyncOptions",
    "CheckpointManager",
    "CheckpointManagerOptions",
    "Checkpointer",
    "CompositeCheckpointHandler",
    "JaxRandomKeyCheckpointHandler",
    "JsonCheckpointHandler",
    "NumpyRandomKeyCheckpointHandler",
    "PyTreeCheckpointHandler",
    "PyTreeCheckpointer",
    "RestoreArgs",
    "SaveArgs",
    "StandardCheckpointHandler",
    "StandardCheckpointer",
    "args",
    "checkpoint_utils",
    "options",
    "utils",
]


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"tensorkeep.integrations.orbax has no {name!r}. It has {', '.join(__all__)}. "
        "Import what else you need from orbax.checkpoint: its options, arguments and handlers are taken here too"
    )
