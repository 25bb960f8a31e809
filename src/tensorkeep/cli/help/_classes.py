"""Commands whose help is a page of ours: in groups, in color on a terminal, without Python's types."""

from __future__ import annotations

from shutil import get_terminal_size
from typing import Any, ClassVar

from typer.core import TyperCommand, TyperGroup

from tensorkeep.cli.help._lines import help_lines
from tensorkeep.cli.help._pages import HelpPage, Section, page_of
from tensorkeep.cli.terminal import rendered


class PlainCommand(TyperCommand):
    """A command."""

    def get_help(self, ctx: Any) -> str:
        """Return the text that `--help` prints."""
        return _text(page_of(ctx.command_path, self.help or "", self.get_params(ctx)))


class PlainGroup(TyperGroup):
    """A command of commands.

    Attributes:
        sections: The commands in their groups.
    """

    sections: ClassVar[list[Section]] = []

    def get_help(self, ctx: Any) -> str:
        """Return the text that `--help` prints."""
        return _text(page_of(ctx.command_path, self.help or "", self.get_params(ctx), self.sections))


def _text(page: HelpPage) -> str:
    return rendered(help_lines(page, get_terminal_size().columns)).removesuffix("\n")
