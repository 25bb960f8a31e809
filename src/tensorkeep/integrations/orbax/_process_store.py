"""A `CheckpointStore` into which all processes of a job save together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax

from tensorkeep.checkpoint import SaveHandle, SaveOptions
from tensorkeep.meshes import TogetherSave, spans_processes
from tensorkeep.store import CheckpointStore
from tensorkeep.tensors import Prepared, prepare


class ProcessStore(CheckpointStore):
    """A store whose steps may have arrays with shards in other processes; all processes then save together."""

    def keep(
        self, step: int, state: Any, metrics: Mapping[str, float], metadata: Mapping[str, str], *, in_background: bool
    ) -> SaveHandle | None:
        """Save a step; the first process looks after the store."""
        if not any(map(spans_processes, jax.tree.leaves(state))):
            if in_background:
                return self.save_async(step, state, metrics, metadata=metadata)
            self.save(step, state, metrics, metadata=metadata)
            return None
        record = self._record(step, metrics)
        save = TogetherSave(partial(prepare, state))
        # Only the options that every process needs; the first one's writer makes its own.
        options = SaveOptions(max_shard_nbytes=self._writer.max_shard_nbytes, durable=self._writer.durable)

        def coordinate(prepared: Prepared) -> None:
            self._writer.write(prepared, record, {"metadata": metadata}, save.write)

        if not in_background:
            save.run(coordinate, options)
            return None
        return save.in_background(
            coordinate, options, path=self._directory_of(step), place=os.path.realpath(self.root)
        )
