"""`tensorkeep prune`: remove the steps of a store that no rule keeps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NamedTuple

import typer

import tensorkeep
from tensorkeep.cli.inputs import AsJson, Greatest, KeepBest, KeepEvery, KeepLast, Monitor, Store, rules_of
from tensorkeep.cli.terminal import Line, printable, show_result
from tensorkeep.texts import counted, listed

_N_LISTED = 20


def prune(
    root: Store,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; show what would be removed.")] = False,
    keep_last: KeepLast = None,
    keep_best: KeepBest = None,
    keep_every: KeepEvery = None,
    monitor: Monitor = None,
    greatest: Greatest = False,
    as_json: AsJson = False,
) -> None:
    """Remove steps that no rule keeps.

    The rules are the ones recorded in the CheckpointStore; a step is kept if one of them keeps it. Options replace
    them, in the store too.
    """
    rules = rules_of(keep_last, keep_best, keep_every, monitor, greatest=greatest)
    is_empty = not tensorkeep.CheckpointStore(root).listing()  # the directory of something else stays as it is
    steps = [] if is_empty else tensorkeep.CheckpointStore(root, **rules).prune(dry_run=dry_run)
    show_result(_Pruned(root, steps, dry_run, is_empty), as_json=as_json)


class _Pruned(NamedTuple):
    """The steps that were removed, or would be."""

    root: str
    steps: list[int]
    is_dry_run: bool
    is_empty: bool

    def lines(self, _width: int | None) -> Iterable[Line]:
        if not self.steps:
            text = "no steps in" if self.is_empty else "the rules keep all steps in"
            return [[(f"{text} {printable(self.root)}", "dim")]]
        verb = "would remove" if self.is_dry_run else "removed"
        return [[(f"{verb} {counted(len(self.steps), 'step')}: {listed(self.steps, _N_LISTED)}", "")]]

    def members(self) -> dict[str, object]:
        return {"path": self.root, "dry_run": self.is_dry_run, "removed": self.steps}
