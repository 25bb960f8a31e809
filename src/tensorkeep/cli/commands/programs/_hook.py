"""`tensorkeep install-hook`: programs use tensorkeep as safetensors if an environment variable says so."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Annotated

import typer

from tensorkeep.cli.terminal import show
from tensorkeep.errors import as_transport_error
from tensorkeep.install import HOOK, HOOK_NAME, VARIABLE
from tensorkeep.transport import publish


def install_hook(
    *, remove: Annotated[bool, typer.Option("--remove", help="Remove the hook instead.")] = False
) -> None:
    """Let an environment variable put tensorkeep in place of safetensors.

    Writes a .pth file into this Python's site-packages. Every process of this Python that is started with
    TENSORKEEP_AS_SAFETENSORS=1 then imports tensorkeep as safetensors; others are not affected. To imitate a version
    of safetensors, set 0.8 or 0.9 instead of 1. Remove the hook before you uninstall tensorkeep.
    """
    path = Path(sysconfig.get_path("purelib"), HOOK_NAME)
    if not remove:
        with publish(str(path)) as sink:
            sink.write([HOOK.encode()])
        show([[("wrote ", ""), (str(path), "module")], [(f"start Python with {VARIABLE}=1 to use it", "dim")]])
    elif path.exists():
        with as_transport_error("could not remove the hook", str(path)):
            path.unlink()
        show([[("removed ", ""), (str(path), "module")]])
    else:
        show([[("there is no ", "dim"), (str(path), "dim")]])
