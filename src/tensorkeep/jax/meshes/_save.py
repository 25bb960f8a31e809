"""One save in which all processes take part.

1. Each process plans the same, alone, and sends the first one sums of its plan.
2. If all are equal, the first process opens the destination, and tells each what to write where.
3. All write, as ranks of any library do (`checkpoint/ranks/`). The first collects digests, and commits.
4. All wait until it has: when a save returns anywhere, the new checkpoint is there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

import msgspec

from tensorkeep.checkpoint import RankSave, SaveHandle, SaveOptions, refuse_file_name, save_in_background
from tensorkeep.errors import StateError
from tensorkeep.jax.meshes._meeting import TIMEOUT_S, meet
from tensorkeep.jax.meshes._save_plan import SharedPlan, Sums, plan_together
from tensorkeep.tensors import Prepared, check_target
from tensorkeep.transport import is_remote

ALIGNMENT_NBYTES: Final = 64
"""Bytes at whose multiples jax shares the memory of a mapped file."""


class TogetherSave:
    """A save as this process takes part in it. Made in the order of the saves, by the calling thread."""

    def __init__(self, make: Callable[[], Prepared], *, timeout_s: float = TIMEOUT_S) -> None:
        self._store, self._ranks = meet(timeout_s)
        self._save: RankSave | None = None
        with self._telling():
            self._plan = plan_together(make())

    def in_background(
        self,
        coordinate: Callable[[Prepared], None],
        options: SaveOptions,
        *,
        path: str,
        place: str | None = None,
        max_waiting: int = 0,
    ) -> SaveHandle:
        """Copy what this process writes, and take part in the background."""

        def run(copied: Prepared) -> None:
            self._plan = self._plan.with_content(copied.to_write)
            self.run(coordinate, options, path)

        return save_in_background(self._plan.content, run, path=path, place=place or path, max_waiting=max_waiting)

    def run(self, coordinate: Callable[[Prepared], None], options: SaveOptions, path: str) -> None:
        """Take part; on the first process, `coordinate` is called, which calls `write`."""
        ranks, plan = self._ranks, self._plan
        with self._telling():
            ranks.put(f"sums/{ranks.rank}", msgspec.msgpack.encode(plan.sums))
            if ranks.rank == 0:
                self._compare()
                coordinate(plan.prepared)
            else:
                self._save = RankSave(path, None, options)
                assignment = ranks.get(f"assignment/{ranks.rank}")
                results = self._save.stage(plan.parts, assignment, ranks)
                ranks.put(f"results/{ranks.rank}", msgspec.msgpack.encode(results))
            ranks.barrier("done")
            if self._store.count("left", 1) == ranks.n_ranks:
                self._store.remove_all()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Tell the others of an error here, and clean up; an error that is theirs is raised in its place."""
        try:
            yield
        except BaseException as error:
            first = None
            # Before the clean-up, which may take long: the other processes wait for this one.
            with suppress(Exception):  # the service may be gone with the process that had it
                first = self._ranks.fail(error)
            if self._save is not None:
                self._save.abandon()
            if first is not None and isinstance(error, Exception):
                raise first from error
            raise

    def write(self, prepared: Prepared, path: str | os.PathLike[str], options: SaveOptions) -> None:
        """Write a state with all others, on the first process: as `write_checkpoint` does alone."""
        ranks, plan = self._ranks, self._plan
        self._save = save = RankSave(os.fspath(path), None, options)
        assignments = save.begin(plan.ranked, prepared, {name: name for name in plan.ranked.tensors})
        for rank, assignment in enumerate(assignments[1:], 1):
            ranks.put(f"assignment/{rank}", assignment)
        results = save.stage(plan.parts, assignments[0], ranks)
        for rank in range(1, ranks.n_ranks):
            results |= msgspec.msgpack.decode(ranks.get(f"results/{rank}"), type=dict[str, bytes])
        save.commit(results)

    def _compare(self) -> None:
        """Refuse processes that save different things."""
        ours = self._plan.sums
        for rank in range(1, self._ranks.n_ranks):
            theirs = msgspec.msgpack.decode(self._ranks.get(f"sums/{rank}"), type=Sums)
            if theirs != ours:
                raise _difference(self._plan, theirs, rank)


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
    return StateError(
        f"processes have different values of `{differing[0]}`",
        expected="one array over all processes, or equal values in all",
        found=f"{len(differing)} that differ in process {rank}",
        hint="Make it one array with jax.make_array_from_process_local_data, or save it to a path for each process",
    )


def save_together(
    make: Callable[[], Prepared],
    path: str | os.PathLike[str],
    options: SaveOptions,
    *,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Save a state of arrays over several processes to a directory; called by all processes."""
    refuse_file_name(directory := check_target(path))
    save = TogetherSave(make, timeout_s=timeout_s)
    save.run(partial(save.write, path=directory, options=options), options, directory)


def save_together_async(
    make: Callable[[], Prepared],
    path: str | os.PathLike[str],
    options: SaveOptions,
    *,
    max_waiting: int = 0,
    timeout_s: float = TIMEOUT_S,
) -> SaveHandle:
    """Copy what this process writes, and save it in the background; called by all processes."""
    refuse_file_name(target := check_target(path))
    if not is_remote(target):
        target = os.path.join(os.getcwd(), target)
    save = TogetherSave(make, timeout_s=timeout_s)
    coordinate = partial(save.write, path=target, options=options)
    return save.in_background(coordinate, options, path=target, max_waiting=max_waiting)
