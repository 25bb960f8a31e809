"""One save in which all processes take part.

1. Each process plans the same, alone, and sends the first one sums of its plan.
2. If all are equal, the first process opens the destination, and tells each what to write where.
3. All write, as ranks of any library do (`checkpoint/ranks/`). The first collects digests, and commits.
4. All wait until it has: when a save returns anywhere, the new checkpoint is there.

If one process has left out a save, the next one meets an earlier save of the others. So all compare also where they
save, and how.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from tensorkeep.checkpoint import RankSave, SaveHandle, SaveOptions, refuse_file_name, save_in_background
from tensorkeep.errors import StateError
from tensorkeep.jax.meshes._meeting import Call, Meeting
from tensorkeep.jax.meshes._save_plan import SharedPlan, Sums, plan_together
from tensorkeep.tensors import Prepared, check_target
from tensorkeep.transport import is_remote, without_secrets

ALIGNMENT_NBYTES: Final = 64
"""Bytes at whose multiples jax shares the memory of a mapped file."""

Write: TypeAlias = Callable[[Prepared, str, SaveOptions], None]
"""Writes a state to a directory, as `write_checkpoint` does."""


class TogetherSave:
    """A save as this process takes part in it; made within its meeting.

    On the first process, `coordinate` is called with the state and a function that writes it, as `write_checkpoint`
    does; by default, it only calls that.
    """

    def __init__(
        self,
        meeting: Meeting,
        prepared: Prepared,
        path: str,
        options: SaveOptions,
        coordinate: Callable[[Prepared, Write], None] | None = None,
    ) -> None:
        self._meeting, self._ranks = meeting, meeting.ranks
        self._path, self._options = path, options
        self._coordinate = coordinate or (lambda prepared, write: write(prepared, path, options))
        self._call = _call_of(path, options)
        self._plan = plan_together(prepared)
        self._save: RankSave | None = None

    def in_background(self, *, place: str | None = None, max_waiting: int = 0) -> SaveHandle:
        """Copy what this process writes, and take part in the background; called within the meeting.

        The error of an earlier save does not keep this one from beginning: the others, which may not have it, would
        fail for it, raise that at their next save, and so on. `raise_earlier` raises it, after the meeting.
        """

        def run(copied: Prepared) -> None:
            self._plan = self._plan.with_content(copied.to_write)
            self.run()

        return save_in_background(
            self._plan.content,
            run,
            path=self._path,
            place=place or self._path,
            max_waiting=max_waiting,
            raises_earlier=False,
        )

    def run(self) -> None:
        """Take part, until the checkpoint is complete."""
        try:
            if self._ranks.rank == 0:
                self._compare()
                self._coordinate(self._plan.prepared, self._write)
            else:
                self._take_part()
            self._ranks.barrier("done")
            self._meeting.leave()
        except BaseException as error:
            # Before the clean-up, which may take long: the other processes wait for this one.
            first = self._meeting.fail(error)
            if self._save is not None:
                self._save.abandon()
            if first is not None and isinstance(error, Exception):
                raise first from error
            raise

    def _take_part(self) -> None:
        """Write the share that the first process assigns."""
        ranks, plan = self._ranks, self._plan
        self._meeting.send(self._call, msgspec.msgpack.encode(plan.sums))
        self._save = RankSave(self._path, None, self._options)
        results = self._save.stage(plan.parts, self._meeting.receive(self._call), ranks)
        ranks.put(f"results/{ranks.rank}", msgspec.msgpack.encode(results))

    def _write(self, prepared: Prepared, path: str | os.PathLike[str], options: SaveOptions) -> None:
        """Write a state with all others, on the first process: as `write_checkpoint` does alone."""
        ranks, plan = self._ranks, self._plan
        self._save = save = RankSave(os.fspath(path), None, options)
        own, *assignments = save.begin(plan.ranked, prepared, {name: name for name in plan.ranked.tensors})
        for rank, assignment in enumerate(assignments, 1):
            self._meeting.send(self._call, assignment, to=rank)
        results = save.stage(plan.parts, own, ranks)
        for rank in self._meeting.others:
            results |= msgspec.msgpack.decode(ranks.get(f"results/{rank}"), type=dict[str, bytes])
        save.commit(results)

    def _compare(self) -> None:
        """Refuse processes that save different things."""
        for rank in self._meeting.others:
            theirs = msgspec.msgpack.decode(self._meeting.receive(self._call, sender=rank), type=Sums)
            if theirs != self._plan.sums:
                raise _difference(self._plan, theirs, rank)


def _call_of(path: str, options: SaveOptions) -> Call:
    """Return what all processes must agree on, so that no checkpoint has parts of two saves."""
    return {
        "function": "save",
        "path": f"{without_secrets(path) if is_remote(path) else os.path.abspath(path)}",
        "metadata": msgspec.json.encode(options.metadata, order="sorted").decode(),
        "max_shard_size": str(options.max_shard_nbytes),
        "sha256": str(options.sha256),
        "durable": str(options.durable),
        "align": str(options.align),
        "order": str(options.order),
    }


def _difference(plan: SharedPlan, theirs: Sums, rank: int) -> StateError:
    names = list(plan.prepared.to_write)
    differing = [
        name for name, one, other in zip(names, plan.sums.tensors, theirs.tensors, strict=False) if one != other
    ]
    if theirs.structure != plan.sums.structure or not differing:
        return StateError(
            "processes save different states",
            expected="the same structure, and the same values other than arrays, in all processes",
            found=f"a different structure or value in process {rank}",
            hint="Pass equal states to all processes; save what differs to a separate path for each",
        )
    is_shared = differing[0] in plan.ranked.tensors
    return StateError(
        f"processes have different values of `{differing[0]}`",
        expected="equal values in all" if is_shared else "one array over all processes, or equal values in all",
        found=f"{len(differing)} that differ in process {rank}",
        hint="Save the same step in all processes; if one has left a save out, restart the job"
        if is_shared
        else "Make it one array with jax.make_array_from_process_local_data, or save it to a path for each process",
    )


def target_directory(path: str | os.PathLike[str]) -> str:
    """Return the absolute path or URL of a directory to save to together, or refuse it."""
    refuse_file_name(target := check_target(path))
    return target if is_remote(target) else os.path.join(os.getcwd(), target)
