"""The application: all commands under one name."""

from __future__ import annotations

from typing import Annotated

import typer

import tensorkeep
from tensorkeep.cli.commands import GROUPS, Command
from tensorkeep.cli.terminal import show_text

app = typer.Typer(
    name="tensorkeep",
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _add(command: Command) -> None:
    """Register a command; the list of commands shows the first line of its help, which typer would cut."""
    summary = (command.function.__doc__ or "").partition("\n")[0]
    app.command(command.name, short_help=summary, context_settings=command.parsing)(command.function)


for _group in GROUPS.values():
    for _command in _group:
        _add(_command)


def _show_version(wanted: bool) -> None:
    if wanted:
        show_text([f"tensorkeep {tensorkeep.__version__}"])
        raise typer.Exit


@app.callback()
def _tensorkeep(
    *,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Keeps tensors safe: inspects, verifies, compares and rewrites checkpoints, and never runs code from them."""
