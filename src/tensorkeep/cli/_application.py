"""The application: all commands under one name."""

from __future__ import annotations

from typing import Annotated, ClassVar

import typer

import tensorkeep
from tensorkeep.cli.commands import GROUPS
from tensorkeep.cli.help import PlainCommand, PlainGroup, Row, Section
from tensorkeep.cli.terminal import show_text


class _Commands(PlainGroup):
    """All commands, in their groups."""

    sections: ClassVar[list[Section]] = [
        Section(title, [Row(command.name, command.summary) for command in commands])
        for title, commands in GROUPS.items()
    ]


app = typer.Typer(
    name="tensorkeep",
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for _command in (command for commands in GROUPS.values() for command in commands):
    app.command(_command.name, cls=PlainCommand, context_settings=_command.parsing)(_command.function)


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
