"""Orbax's `CheckpointManager` over a `CheckpointStore`: a program changes its import, and its code stays.

    import tensorkeep.integrations.orbax as ocp  # was: import orbax.checkpoint as ocp

    with ocp.CheckpointManager("/run", options=ocp.CheckpointManagerOptions(max_to_keep=3)) as manager:
        manager.save(step, args=ocp.args.StandardSave(state))
        state = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(abstract_state))

Arguments and options of orbax itself are taken too; orbax need not be installed.

- `args`: what is saved or restored, as orbax names it.
- `_options`: `CheckpointManagerOptions`.
- `_items`: what arguments of either library mean.
- `_process_store`: a `CheckpointStore` into which all processes of a job save together.
- `_older_steps`: steps that orbax left in the directory.
- `_manager`: `CheckpointManager`.
"""

import tensorkeep.errors

with tensorkeep.errors.importing(jax="jax"):
    import jax  # noqa: F401

from tensorkeep.integrations.orbax import args
from tensorkeep.integrations.orbax._manager import CheckpointManager
from tensorkeep.integrations.orbax._options import CheckpointManagerOptions

__all__ = ["CheckpointManager", "CheckpointManagerOptions", "args"]
