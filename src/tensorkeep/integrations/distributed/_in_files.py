"""A save into files that all ranks see: the first stages them, and each rank writes to its places in them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner

from tensorkeep.checkpoint import MultiWriterPlan, MultiWriterSave, plan_pieces, plan_whole
from tensorkeep.errors import UnsupportedError
from tensorkeep.integrations.distributed._council import Council
from tensorkeep.integrations.distributed._layout import Gathered
from tensorkeep.integrations.distributed._tasks import Task, pieces_by_rank, tasks_for, tasks_for_pieces
from tensorkeep.integrations.distributed._ways import Options
from tensorkeep.integrations.distributed._work import digest_parts, write_own, write_parts
from tensorkeep.tensors import Prepared


class InFiles:
    """See `Way`."""

    def __init__(self, path: str, options: Options) -> None:
        self._path = path
        self._options = options
        self._save: MultiWriterSave | None = None
        self._own_digests: dict[str, bytes] = {}

    def begin(self, gathered: Gathered, prepared: Prepared, names: Mapping[str, str]) -> list[bytes]:
        """Stage the files of all; see `Way.begin`."""
        options = self._options
        self._save = save = MultiWriterSave(
            self._plan(gathered, prepared, names),
            self._path,
            metadata=options.metadata,
            sha256=options.sha256,
            durable=options.durable,
            **options.naming,
        )
        own = {name: host for name, host in prepared.to_write.items() if name not in names.values()}
        self._own_digests = write_own(save, own, durable=options.durable)
        share_out = tasks_for_pieces if options.layout == "per_rank" else tasks_for
        return [msgspec.msgpack.encode(task) for task in share_out(gathered, names, save.places, save.files)]

    def _plan(self, gathered: Gathered, prepared: Prepared, names: Mapping[str, str]) -> MultiWriterPlan:
        options = self._options
        limit = options.max_shard_nbytes
        if options.layout == "per_rank":
            pieces = pieces_by_rank(gathered, names, prepared.to_write)
            return plan_pieces(prepared, pieces, max_shard_nbytes=limit, **options.naming)
        return plan_whole(prepared, max_shard_nbytes=limit, needs_index=options.sha256, **options.naming)

    def write(self, plan: SavePlan, planner: SavePlanner, task: bytes, council: Council) -> dict[str, bytes]:
        """Write what this rank has, and return the digests that it made; see `Way.write`."""
        todo = msgspec.msgpack.decode(task, type=Task)

        def refresh() -> None:
            if self._save is not None:
                self._save.refresh()

        def look() -> None:
            council.look()
            refresh()

        digests = write_parts(plan, planner, todo, durable=self._options.durable, look=look)
        council.meet("written", refresh)
        digests |= digest_parts(todo, look)
        council.meet("digested", refresh)
        return digests

    def commit(self, told: dict[str, bytes]) -> None:
        """Switch to the new files; see `Way.commit`."""
        save, self._save = self._save, None
        if save is None:
            raise UnsupportedError("the save is over")
        save.commit({**self._own_digests, **told})

    def abandon(self) -> None:
        """Leave everything as it was; see `Way.abandon`."""
        save, self._save = self._save, None
        if save is not None:
            save.abandon()
