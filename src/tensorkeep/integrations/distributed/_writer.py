"""A storage writer for torch.distributed.checkpoint: all ranks write one checkpoint."""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from tensorkeep.checkpoint import RankSave, Rendezvous, SaveOptions, refuse_file_name
from tensorkeep.encryption import Encryption, KeyLike
from tensorkeep.errors import UnsupportedError
from tensorkeep.integrations.distributed import _active_saves
from tensorkeep.integrations.distributed._global_plan import GlobalPlan, merge_plans, tree_of
from tensorkeep.integrations.distributed._local_objects import LocalObjects, local_objects, objects_in
from tensorkeep.integrations.distributed._sessions import Session, place_of
from tensorkeep.integrations.distributed._tensor_parts import RankParts
from tensorkeep.layout import index_name, parse_size
from tensorkeep.tensors import check_target, prepare
from tensorkeep.transport import is_remote

_SAVE: Final = "tensorkeep save"
"""Name of the result that identifies the save."""

Layout: TypeAlias = Literal["in_place", "per_rank"]
"""Where parts of tensors go; see `TensorkeepWriter`."""


class TensorkeepWriter(StorageWriter):
    """Saves what all ranks have as one checkpoint, complete or not at all: `dcp.save(..., storage_writer=...)`.

    The result is what `tensorkeep.save_checkpoint` writes: `model.safetensors`, or several shards with an index.
    Each rank writes its parts of tensors to their places in these files; nothing is gathered, and nothing is pickled.
    Values that are not tensors become part of the checkpoint's tree, so that `tensorkeep.load` gives back the nested
    state dict. The existing checkpoint stays whole until the new one is complete, whichever rank fails or is killed.

    All ranks must see the directory: it is on a file system that they share, or in a store.

    Args:
        path: The directory, which the first rank creates if its parent exists. Or its URL in a writable store, such
            as `"s3://bucket/step-1000/"`, or a path that `tensorkeep.remote` returned.
        layout: `"in_place"`: each tensor is whole in one file, as in any checkpoint, and ranks write their parts to
            their places. `"per_rank"`: each rank writes its parts into files of its own; the index says which file
            has which part of a tensor, and tensorkeep assembles them on reading. That is faster where ranks have
            columns. Other readers find the parts under names such as `w[0:4,8:16]`, and `tensorkeep.reshard` turns
            the result into an ordinary checkpoint. None: in place in a directory; per rank in a store, where nothing
            else is possible.
        max_shard_size: Bytes of tensors in one file: a number, or text such as `"5GB"` or `"500 MiB"`. A larger
            tensor gets a file of its own.
        base_name: What file names begin with.
        variant: Such as `"fp16"`, which gives `model.fp16.safetensors`.
        metadata: Free text by key, for each file.
        sha256: Whether the index gets the SHA-256 of each file, by which Git LFS and the Hub know it.
        durable: Whether to wait until everything is on the disk (fsync).
        timeout_s: Seconds without a sign of life from any rank after which the save fails; None for the timeout of
            the process group.
        encrypt: The key to encrypt with, the path of a file with it, or an `Encryption`, the same on all ranks. Each
            rank then writes files of its own, as with `"per_rank"`.

    Raises:
        TypeError: If `path` is not path-like.
        UnsupportedError: If an argument is invalid.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        layout: Layout | None = None,
        max_shard_size: int | str = "5GB",
        base_name: str = "model",
        variant: str | None = None,
        metadata: Mapping[str, str] | None = None,
        sha256: bool = False,
        durable: bool = True,
        timeout_s: float | None = None,
        encrypt: KeyLike | Encryption | None = None,
    ) -> None:
        index_name(base_name, variant)
        if layout not in {None, *get_args(Layout)}:
            raise UnsupportedError(
                f"layout {layout!r} is invalid", expected="one of " + ", ".join(get_args(Layout)), found=repr(layout)
            )
        if encrypt is not None and layout == "in_place":
            raise UnsupportedError(
                "several ranks cannot encrypt one file", expected='layout="per_rank"', found='layout="in_place"'
            )
        self._layout = layout
        self._options = SaveOptions(
            max_shard_nbytes=parse_size(max_shard_size),
            base_name=base_name,
            variant=variant,
            metadata=None if metadata is None else dict(metadata),
            sha256=sha256,
            durable=durable,
            encryption=Encryption.of(encrypt),
        )
        self._path = _checked(path, layout)
        self._timeout_s = timeout_s
        self._global_plans: dict[str, GlobalPlan] = {}

    @property
    def checkpoint_id(self) -> str:
        """The directory."""
        return self._path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Return whether a value can be the path of a checkpoint.

        Args:
            checkpoint_id: Any value.

        Returns:
            Whether `TensorkeepWriter` takes it.
        """
        with suppress(TypeError, UnsupportedError):
            _checked(checkpoint_id, None)
            return True
        return False

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Start over, in another directory if one is given.

        Args:
            checkpoint_id: The directory; None keeps the one that the writer has.
        """
        _active_saves.abandon_broken()
        is_known = type(checkpoint_id) is str and checkpoint_id == self._path  # which may know how to reach its store
        if checkpoint_id is not None and not is_known:
            self._path = _checked(checkpoint_id, self._layout)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Begin a save; called on all ranks.

        Args:
            is_coordinator: Whether this rank plans for all.
            *args: Ignored.
            **kwargs: Options of the save, from torch.

        Raises:
            UnsupportedError: If `use_collectives` is false: the ranks could not agree on files.
        """
        if not kwargs.get("use_collectives", True):
            raise UnsupportedError(
                "ranks that save into the same files must agree on their places",
                expected="use_collectives=True",
                found="use_collectives=False",
            )

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan of this rank unchanged.

        Args:
            plan: The plan.
        """
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Merge the plans of all ranks; called on the first.

        Args:
            plans: The plan of each rank.

        Returns:
            The same plans, with an identifier of this save.

        Raises:
            DtypeError: If the format has no such dtype.
            UnsupportedError: If the plans together do not cover each tensor exactly once.
        """
        save_id = uuid.uuid4().hex
        self._global_plans = {save_id: merge_plans(plans)}
        place = place_of(self._path)
        sessions = [Session(save_id, rank, len(plans), _sum_of(plan), place) for rank, plan in enumerate(plans)]
        return [
            SavePlan(plan.items, session, plan.planner_data, plan.usable)
            for plan, session in zip(plans, sessions, strict=True)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write what this rank has; called on all ranks.

        Args:
            plan: The plan of this rank.
            planner: Gives the values.

        Returns:
            A completed future, with what the first rank needs to finish the files.

        Raises:
            UnsupportedError: If `prepare_global_plan` did not return the plan.
            BaseException: An error here or on any other rank; every rank raises it.
        """
        session = plan.storage_data
        if not isinstance(session, Session):
            raise UnsupportedError("the plan does not belong to this save", found=type(session).__name__)
        ranks = session.rendezvous(self._timeout_s)
        save = RankSave(self._path, self._layout, self._options)
        try:
            results = self._write(plan, planner, session, ranks, save)
        except BaseException as error:
            first = None
            # Before the clean-up, which may take long: the other ranks wait for this one.
            with suppress(Exception):  # the store may be gone with the rank that had it
                first = ranks.fail(error)
            _active_saves.abandon(session.save_id)
            save.abandon()
            if first is not None and isinstance(error, Exception):
                raise first from error
            raise
        written = [WriteResult(MetadataIndex(name), len(result), result) for name, result in results.items()]
        future: Future[list[WriteResult]] = Future()
        future.set_result([WriteResult(MetadataIndex(_SAVE), 0, session.save_id), *written])
        return future

    def _write(
        self, plan: SavePlan, planner: SavePlanner, session: Session, ranks: Rendezvous, save: RankSave
    ) -> dict[str, bytes]:
        session.check_path(self._path)
        if _sum_of(plan) != session.plan_sum:
            raise UnsupportedError(
                "the planner has changed the plan after all ranks had agreed on it",
                hint="Save with a planner whose finish_plan keeps the items, such as DefaultSavePlanner",
            )
        ranks.put(f"objects/{session.rank}", msgspec.msgpack.encode(local_objects(plan, planner)))
        if session.rank == 0:
            _active_saves.begin(session.save_id, save)
            self._begin(session, ranks, save)
        return save.stage(RankParts(plan, planner), ranks.get(f"assignment/{session.rank}"), ranks)

    def _begin(self, session: Session, ranks: Rendezvous, save: RankSave) -> None:
        """Plan the files of all ranks, and send each rank its assignment."""
        gathered = self._global_plans.pop(session.save_id, None)
        if gathered is None:
            raise UnsupportedError(
                "a step of the save was left out", hint="Save with torch.distributed.checkpoint.save"
            )
        texts = [ranks.get(f"objects/{rank}") for rank in range(session.n_ranks)]
        by_rank = [msgspec.msgpack.decode(text, type=LocalObjects) for text in texts]
        objects = {name: value for local in by_rank for name, value in objects_in(local).items()}
        tree, leaves = tree_of(gathered, objects, [local.ties for local in by_rank])
        prepared = prepare(tree)
        name_of = {id(tensor): name for name, tensor in prepared.tensors.items()}
        names = {planned: name_of[id(leaf)] for planned, leaf in leaves.items()}
        for rank, assignment in enumerate(save.begin(gathered, prepared, names)):
            ranks.put(f"assignment/{rank}", assignment)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:  # noqa: ARG002
        """Commit the new checkpoint; called on the first rank when all have written.

        Args:
            metadata: Ignored: the files hold it.
            results: The results of each rank.

        Raises:
            UnsupportedError: If the save was abandoned because the same thread began another one.
            BusyError: If another process decided that this save had died, and took its lock.
            SourceChangedError: If another save to the same place in a store was committed meanwhile.
            TransportError: If a system call or request fails.
        """
        reported = {result.index.fqn: result.storage_data for of_rank in results for result in of_rank}
        _active_saves.end(reported.pop(_SAVE)).commit(reported)


def _sum_of(plan: SavePlan) -> int:
    """Return a checksum of the items of a plan and their order."""
    names = (f"{item.index.fqn} {item.index.offset}" for item in plan.items)
    return zlib.crc32("\n".join(names).encode("utf-8", "surrogatepass"))


def _checked(path: str | os.PathLike[str], layout: str | None) -> str:
    """Return the path of a directory as text, or refuse it."""
    directory = check_target(path)
    refuse_file_name(directory)
    if is_remote(directory) and layout == "in_place":
        raise UnsupportedError(
            "several ranks cannot write to one file in a store",
            path=directory,
            expected='layout="per_rank"',
            found='layout="in_place"',
            hint="tensorkeep.reshard turns files of single ranks into an ordinary checkpoint",
        )
    return directory
