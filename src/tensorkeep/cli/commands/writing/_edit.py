"""`tensorkeep edit`: change metadata and names in place."""

from __future__ import annotations

from typing import Annotated

import typer

import tensorkeep
from tensorkeep.cli.inputs import AsJson, Rename, Rewritten, pairs_of
from tensorkeep.cli.terminal import json_lines, reporting_interrupt, show, show_text
from tensorkeep.errors import RefusedError
from tensorkeep.texts import listed


def edit(
    path: Rewritten,
    *,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=TEXT", help="Set a metadata key to this text.")
    ] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", metavar="KEY", help="Remove a metadata key.")] = None,
    rename: Rename = None,
    as_json: AsJson = False,
) -> None:
    """Change metadata and names in place.

    Headers and the index are rewritten, in all shards alike; tensors are copied only if a new header does not fit in
    the space of the old one. Digests stay valid. Whenever this is stopped, the checkpoint is the old or the new one.

    Every option can be repeated.
    """
    added = pairs_of(assignments, "--set", "KEY=TEXT")
    renaming = pairs_of(rename, "--rename", "OLD=NEW")
    _refuse_nothing(len(added) + len(renaming) + len(unset or []))
    if unset and not added.keys() & set(unset):
        _require_keys(path, unset)
    with reporting_interrupt(path):
        tensorkeep.edit(path, set_metadata=added, unset=unset or [], rename=renaming or None)
    if as_json:
        with tensorkeep.open(path) as tensors:
            show_text(json_lines({"path": path, "metadata": tensors.metadata, "renamed": renaming}))
    else:
        show([[("edited ", ""), (path, "title")]])


def _require_keys(path: str, keys: list[str]) -> None:
    """Refuse to remove metadata that no file of the checkpoint has."""
    with tensorkeep.open(path) as tensors:
        known = {key: None for file in tensors.describe().files for key in file.metadata or ()}
    for key in keys:
        if key not in known:
            raise RefusedError(
                f"no metadata `{key}` to remove", path=path, found=listed(map(repr, known), 10) or "no metadata"
            )


def _refuse_nothing(n_changes: int) -> None:
    if not n_changes:
        raise typer.BadParameter("nothing to change", param_hint="'--set', '--unset' or '--rename'")
