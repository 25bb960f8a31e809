"""`tensorkeep run` and `tensorkeep install-hook`: unedited programs use tensorkeep as safetensors."""

from __future__ import annotations

import os
import runpy
import sys
import sysconfig
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from tensorkeep.cli.terminal import show
from tensorkeep.errors import SourceMissingError, as_transport_error
from tensorkeep.install import HOOK, HOOK_NAME, VARIABLE, install_as_safetensors
from tensorkeep.transport import publish

AS_TYPED = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""Settings of `run`: arguments after the program belong to the program."""


class Program(NamedTuple):
    """A Python program to run, after the command line has done its part."""

    name: str
    arguments: list[str]
    is_module: bool

    def run(self) -> None:
        """Run it as the interpreter would, with tensorkeep as safetensors."""
        install_as_safetensors()
        os.environ.setdefault(VARIABLE, "1")  # for the processes it starts, if the hook is installed
        sys.argv = [self.name, *self.arguments]
        if not sys.flags.safe_path:
            sys.path[0] = os.getcwd() if self.is_module else os.path.dirname(os.path.realpath(self.name))
        if self.is_module:
            runpy.run_module(self.name, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(self.name, run_name="__main__")


def run(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="A Python script.", show_default=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENT]...", help="Its arguments.", show_default=False)
    ] = None,
    *,
    module: Annotated[bool, typer.Option("-m", help="PROGRAM is a module, as for python -m.")] = False,
) -> Program:
    """Run a Python program with tensorkeep in place of safetensors.

    The program and the libraries that it imports, such as transformers, then read and write with tensorkeep. The
    safetensors package need not be installed. For programs that start other Python processes, see install-hook.
    """
    if not module and not os.path.exists(program):
        raise SourceMissingError(f"No such file or directory: {program}", path=program)
    return Program(program, arguments or [], module)


def install_hook(
    *, remove: Annotated[bool, typer.Option("--remove", help="Remove the hook instead.")] = False
) -> None:
    """Let an environment variable put tensorkeep in place of safetensors.

    Writes a .pth file into this Python's site-packages. Every process of this Python that is started with
    TENSORKEEP_AS_SAFETENSORS=1 then imports tensorkeep as safetensors; others are not affected. 0.8 or 0.9 instead
    of 1 chooses the version. Remove the hook before you uninstall tensorkeep.
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
