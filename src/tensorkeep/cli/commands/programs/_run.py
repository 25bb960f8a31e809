"""`tensorkeep run`: an unedited program uses tensorkeep as safetensors."""

from __future__ import annotations

import os
import runpy
import sys
from typing import Annotated, NamedTuple

import typer

from tensorkeep.errors import SourceMissingError
from tensorkeep.install import VARIABLE, install_as_safetensors

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
    module: Annotated[bool, typer.Option("-m", help="PROGRAM is a module, as for 'python -m'.")] = False,
) -> Program:
    """Run a Python program with tensorkeep in place of safetensors.

    The program and the libraries that it imports, such as transformers, then read and write with tensorkeep. The
    safetensors package need not be installed. For programs that start other Python processes, see install-hook.
    """
    if not module and not os.path.exists(program):
        raise SourceMissingError.at(program)
    return Program(program, arguments or [], module)
