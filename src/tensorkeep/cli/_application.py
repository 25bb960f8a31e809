"""The application: all commands under one name."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import typer

import tensorkeep
from tensorkeep.cli._command import WritingCommand, with_output
from tensorkeep.cli.commands import FAMILIES, GROUPS
from tensorkeep.cli.help import PlainGroup, Row, Section
from tensorkeep.cli.inputs import ungrouped
from tensorkeep.cli.terminal import show_text


class _Commands(PlainGroup):
    """All commands, in their groups."""

    sections: ClassVar[list[Section]] = [
        Section(title, [Row(command.name, command.summary) for command in commands])
        for title, commands in GROUPS.items()
    ]


def _typer(name: str, cls: type[PlainGroup], **settings: Any) -> typer.Typer:
    return typer.Typer(
        name=name,
        cls=cls,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        **settings,
    )


def _family(word: str) -> typer.Typer:
    """Make the command whose commands have names that begin with a word."""
    rows = [
        Row(command.name.removeprefix(f"{word} "), command.summary)
        for commands in GROUPS.values()
        for command in commands
        if command.name.startswith(f"{word} ")
    ]
    group = type(word, (PlainGroup,), {"sections": [Section("Commands", rows)]})
    return _typer(word, group, help=FAMILIES[word])


app = _typer("tensorkeep", _Commands)
_families = {word: _family(word) for word in FAMILIES}
for _family_app in _families.values():
    app.add_typer(_family_app)
for _command in (command for commands in GROUPS.values() for command in commands):
    _word, _, _name = _command.name.rpartition(" ")
    _register = _families.get(_word, app).command(_name, cls=WritingCommand, context_settings=_command.parsing)
    _register(ungrouped(with_output(_command.function)))


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
