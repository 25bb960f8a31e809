"""A storage writer of torch.distributed.checkpoint, with which all ranks write one checkpoint."""

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

from tensorkeep.checkpoint import refuse_file_name
from tensorkeep.errors import UnsupportedError
from tensorkeep.integrations.distributed import _under_way
from tensorkeep.integrations.distributed._council import Council, Session
from tensorkeep.integrations.distributed._in_files import InFiles
from tensorkeep.integrations.distributed._in_store import InStore
from tensorkeep.integrations.distributed._layout import Gathered, gather, tree_of
from tensorkeep.integrations.distributed._survey import Survey, objects_of, survey
from tensorkeep.integrations.distributed._ways import Options, Way
from tensorkeep.layout import index_name, parse_size
from tensorkeep.tensors import check_target, prepare
from tensorkeep.transport import is_remote

_SAVE: Final = "tensorkeep save"
"""Name of the result that tells which save it is of."""

Layout: TypeAlias = Literal["in_place", "per_rank"]
"""Where the parts of tensors go."""


class TensorkeepWriter(StorageWriter):
    """Saves what all ranks have as one checkpoint, complete or not at all: `dcp.save(..., storage_writer=...)`.

    The result is what `tensorkeep.save_checkpoint` writes: `model.safetensors`, or several shards with an index.
    Each rank writes its parts of tensors to their places in these files; nothing is gathered, and nothing is pickled.
    Values that are no tensors become part of the checkpoint's tree, so that `tensorkeep.load` gives back the nested
    state dict. The checkpoint that stands there stays whole until the new one is, whichever rank fails or is killed.

    All ranks must see the directory: it is on a file system that they share, or in a store.

    Args:
        path: The directory; made by the first rank if its parent is there. Or its URL in a store that can be written
            to, such as `"s3://bucket/step-1000/"`, or what `tensorkeep.remote` makes of one.
        layout: `"in_place"`: each tensor stands whole in one file, as in any checkpoint, and ranks write their parts
            to their places. `"per_rank"`: each rank writes files of its own, in which its parts follow each other;
            the index says which part of a tensor is where, and tensorkeep puts them together when they are read.
            Faster to write where ranks have columns; other readers find the parts under names such as `w[0:4,8:16]`,
            and `tensorkeep.reshard` makes a usual checkpoint of it. None: in place; per rank in a store, where there
            is no other way.
        max_shard_size: Bytes of tensors in one file: a number, or text such as `"5GB"` or `"500 MiB"`. A larger
            tensor gets a file of its own.
        base_name: What file names begin with.
        variant: Such as `"fp16"`, which gives `model.fp16.safetensors`.
        metadata: Free text by key, for each file.
        sha256: Whether the index gets the SHA-256 of each file, the name that Git LFS and the Hub give it.
        durable: Whether to wait until the disk has everything (fsync).
        timeout_s: Seconds for which no rank is heard of, after which those that are missing are given up; None for
            those of the process group.

    Raises:
        TypeError: If the path is none.
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
    ) -> None:
        index_name(base_name, variant)
        if layout not in {None, *get_args(Layout)}:
            raise UnsupportedError(
                f"layout {layout!r} is invalid", expected="one of " + ", ".join(get_args(Layout)), found=repr(layout)
            )
        self._options = Options(
            layout,
            parse_size(max_shard_size),
            base_name,
            variant,
            None if metadata is None else dict(metadata),
            sha256,
            durable,
        )
        self._path = _checked(path, layout)
        self._timeout_s = timeout_s
        self._gathered: dict[str, Gathered] = {}

    @property
    def checkpoint_id(self) -> str:
        """The directory."""
        return self._path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Say whether something is the path of a directory.

        Args:
            checkpoint_id: Anything.
        """
        with suppress(TypeError, UnsupportedError):
            _checked(checkpoint_id, None)
            return True
        return False

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begin anew, in another directory if one is given.

        Args:
            checkpoint_id: The directory; None for the one that the writer has.
        """
        _under_way.abandon_broken()
        is_known = type(checkpoint_id) is str and checkpoint_id == self._path  # which may know how to reach its store
        if checkpoint_id is not None and not is_known:
            self._path = _checked(checkpoint_id, self._options.layout)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Begin a save; called on all ranks.

        Args:
            is_coordinator: Whether this rank plans for all.
            *args: Of no effect.
            **kwargs: What torch says of the save.

        Raises:
            UnsupportedError: If ranks are to save without a word to each other.
        """
        if not kwargs.get("use_collectives", True):
            raise UnsupportedError(
                "ranks that save into the same files must agree on their places",
                expected="use_collectives=True",
                found="use_collectives=False",
            )

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Take the plan of this rank as it is.

        Args:
            plan: The plan.
        """
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Put the plans of all ranks together; called on the first.

        Args:
            plans: Of each rank.

        Returns:
            The same plans, with what tells this save from others.

        Raises:
            DtypeError: If the format has no such dtype.
            UnsupportedError: If the plans are not all of each tensor.
        """
        save_id = uuid.uuid4().hex
        self._gathered = {save_id: gather(plans)}
        sessions = [Session(save_id, rank, len(plans), _sum_of(plan)) for rank, plan in enumerate(plans)]
        return [
            SavePlan(plan.items, session, plan.planner_data, plan.usable)
            for plan, session in zip(plans, sessions, strict=True)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write what this rank has; called on all ranks.

        Args:
            plan: Of this rank.
            planner: Gives the values.

        Returns:
            A future that is done, with what the first rank has to know of the files.

        Raises:
            UnsupportedError: If the plan is not one that `prepare_global_plan` gave.
            BaseException: What goes wrong here, or on any other rank: all raise it.
        """
        session = plan.storage_data
        if not isinstance(session, Session):
            raise UnsupportedError("the plan is not of this save", found=type(session).__name__)
        council = Council(session, self._timeout_s)
        way: Way = InStore(self._path, self._options) if is_remote(self._path) else InFiles(self._path, self._options)
        try:
            told = self._write(plan, planner, session, council, way)
        except BaseException as error:
            first = None
            with suppress(Exception):  # the store may be gone with the rank that had it
                first = council.fail(error)
            _under_way.abandon(session.save_id)
            way.abandon()
            if first is not None and isinstance(error, Exception):
                raise first from error
            raise
        results = [WriteResult(MetadataIndex(name), len(what), what) for name, what in told.items()]
        future: Future[list[WriteResult]] = Future()
        future.set_result([WriteResult(MetadataIndex(_SAVE), 0, session.save_id), *results])
        return future

    def _write(
        self, plan: SavePlan, planner: SavePlanner, session: Session, council: Council, way: Way
    ) -> dict[str, bytes]:
        if _sum_of(plan) != session.plan_sum:
            raise UnsupportedError(
                "the planner has changed the plan after all ranks had agreed on it",
                hint="Save with a planner whose finish_plan keeps the items, such as DefaultSavePlanner",
            )
        council.tell(f"survey/{session.rank}", msgspec.msgpack.encode(survey(plan, planner)))
        if session.rank == 0:
            _under_way.begin(session.save_id, way)
            self._begin(session, council, way)
        return way.write(plan, planner, council.hear(f"task/{session.rank}"), council)

    def _begin(self, session: Session, council: Council, way: Way) -> None:
        """Plan the files of all, and tell each rank what to write."""
        gathered = self._gathered.pop(session.save_id, None)
        if gathered is None:
            raise UnsupportedError(
                "a step of the save was left out", hint="Save with torch.distributed.checkpoint.save"
            )
        surveys = [
            msgspec.msgpack.decode(council.hear(f"survey/{rank}"), type=Survey) for rank in range(session.n_ranks)
        ]
        objects = {name: value for survey in surveys for name, value in objects_of(survey).items()}
        tree, leaves = tree_of(gathered, objects, [survey.ties for survey in surveys])
        prepared = prepare(tree)
        name_of = {id(tensor): name for name, tensor in prepared.tensors.items()}
        names = {planned: name_of[id(leaf)] for planned, leaf in leaves.items()}
        for rank, task in enumerate(way.begin(gathered, prepared, names)):
            council.tell(f"task/{rank}", task)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:  # noqa: ARG002
        """Switch to the new checkpoint; called on the first rank when all have written.

        Args:
            metadata: Of no effect: the files say it.
            results: Of each rank.

        Raises:
            UnsupportedError: If the save was given up, since the same thread began another one before.
            BusyError: If another process took the save for dead.
            SourceChangedError: If another save into the same place of a store was finished in the meantime.
            TransportError: If the system fails.
        """
        told = {result.index.fqn: result.storage_data for of_rank in results for result in of_rank}
        _under_way.end(told.pop(_SAVE)).commit(told)


def _sum_of(plan: SavePlan) -> int:
    """Return a checksum of what a plan has in which order."""
    names = (f"{item.index.fqn} {item.index.offset}" for item in plan.items)
    return zlib.crc32("\n".join(names).encode("utf-8", "surrogatepass"))


def _checked(path: str | os.PathLike[str], layout: str | None) -> str:
    """Return the path of a directory as text."""
    directory = check_target(path)
    refuse_file_name(directory)
    if is_remote(directory) and layout == "in_place":
        raise UnsupportedError(
            "in a store no file can be written by several ranks",
            path=directory,
            expected='layout="per_rank"',
            found='layout="in_place"',
            hint="tensorkeep.reshard makes a usual checkpoint of what ranks wrote each for itself",
        )
    return directory
