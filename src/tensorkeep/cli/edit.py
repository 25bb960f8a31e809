"""`tensorkeep edit`: metadata and names changed in place."""

from __future__ import annotations

from typing import Annotated

import typer

import tensorkeep
from tensorkeep.cli.inputs import AsJson, Rename, Target, pairs_of
from tensorkeep.cli.reports import document_lines
from tensorkeep.cli.terminal import show, show_text


def edit(
    path: Target,
    *,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=TEXT", help="Give a metadata key this text.")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Take a metadata key away.")
    ] = None,
    rename: Rename = None,
    as_json: AsJson = False,
) -> None:
    """Change metadata and names in place.

    Headers and the index are written anew, in all shards alike; tensors are copied only where a new header does not
    fit in the place of the old one. Digests stay true. Whenever this is stopped, the checkpoint is the old or the new
    one, and nothing between.

    Every option can be given again.
    """
    added = pairs_of(assignments, "--set", "KEY=TEXT")
    renaming = pairs_of(rename, "--rename", "OLD=NEW")
    _refuse_nothing(len(added) + len(renaming) + len(unset or []))
    tensorkeep.edit(path, set_metadata=added, unset=unset or [], rename=renaming or None)
    if as_json:
        with tensorkeep.open(path) as tensors:
            show_text(document_lines({"path": path, "metadata": tensors.metadata, "renamed": renaming}))
    else:
        show([[("edited ", ""), (path, "title")]])


def _refuse_nothing(n_changes: int) -> None:
    if not n_changes:
        raise typer.BadParameter("there is nothing to change", param_hint="'--set', '--unset' or '--rename'")
