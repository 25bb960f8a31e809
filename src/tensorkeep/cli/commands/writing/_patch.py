"""`tensorkeep patch`: what turns one checkpoint into another, made, applied, undone and combined."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

import typer

import tensorkeep
from tensorkeep.cli.inputs import AsJson, EncryptOptions, Force, KeyOptions, keys_of
from tensorkeep.cli.reports import Patched, read_written
from tensorkeep.cli.terminal import Writing, show_result

_USES: Final = {
    "make": "OLD NEW -o PATCH",
    "apply": "PATH PATCH...",
    "undo": "PATH PATCH...",
    "chain": "PATCH... -o PATCH",
}


def patch(
    action: Annotated[str, typer.Argument(metavar="ACTION", help="make, apply, undo or chain.", show_default=False)],
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Checkpoints and patches, as shown above.", show_default=False),
    ],
    *,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="PATH", help="What to write; without it, apply and undo replace PATH."
        ),
    ] = None,
    reversible: Annotated[
        bool, typer.Option("--reversible", help="Keep removed and replaced tensors in the patch, for undo.")
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
    key: KeyOptions,
    encryption: EncryptOptions,
) -> None:
    """Turn one checkpoint into another with a small file.

    \b
      tensorkeep patch make OLD NEW -o PATCH    what turns OLD into NEW, bit for bit
      tensorkeep patch apply PATH PATCH...      turn the checkpoint at PATH into the new one
      tensorkeep patch undo PATH PATCH...       turn it back
      tensorkeep patch chain PATCH... -o PATCH  several patches as one

    A patch has the digests of both checkpoints, and fits no others. If apply or undo is stopped, PATH is the old
    checkpoint or the new one.

    A key applies to whichever is encrypted. What is written is then encrypted too, with the same key unless --encrypt
    names another.
    """  # noqa: D301 - typer takes it as a mark to keep the lines
    _refuse_misuse(action, paths, output)
    patches = tensorkeep.patches
    keys, encrypt = key.keys(), encryption.encryption()
    secrets: dict[str, Any] = {"key": keys, "encrypt": encrypt}
    destination = output or paths[0]
    writing = Writing(destination, force=force, asks=not as_json)
    if action in {"make", "chain"}:
        write = (
            partial(patches.make, paths[0], paths[1], destination, reversible=reversible, **secrets)
            if action == "make"
            else partial(patches.chain, paths, destination, **secrets)
        )
        made = writing.run_shown("comparing" if action == "make" else "adding", write)
        show_result(Patched(made, writing.seconds, writing.replaced), as_json=as_json)
        return
    change = patches.apply if action == "apply" else patches.undo
    writing.run_shown("patching", partial(change, *paths, output=output, **secrets))
    readable = [*(keys or ()), *(keys_of(encrypt) or ())]
    written = read_written(destination, None, writing.seconds, writing.replaced, readable or None)
    show_result(written, as_json=as_json)


def _refuse_misuse(action: str, paths: list[str], output: str | None) -> None:
    """Refuse paths that do not fit the action."""
    if action not in _USES:
        raise typer.BadParameter(f"{action!r} is not one of {', '.join(_USES)}", param_hint="'ACTION'")
    n_paths = {"make": len(paths) == 2, "chain": len(paths) >= 1}.get(action, len(paths) >= 2)
    if not n_paths or (output is None and action in {"make", "chain"}):
        raise typer.BadParameter(f"tensorkeep patch {action} {_USES[action]}", param_hint="'PATH...'")
