"""The pages of `--help`: groups, whole sentences, no types of Python, colors on terminals only."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
import typer

from tensorkeep.cli import app
from tensorkeep.cli.commands import FAMILIES, GROUPS
from tensorkeep.cli.help import HelpPage, PlainGroup, page_of
from tests.support.command_line_page import parser_of

GROUP: Any = typer.main.get_command(app)
COMMANDS: dict[str, Any] = {
    command.name: parser_of(command.name) for commands in GROUPS.values() for command in commands
}
CONTEXT = typer.Context(GROUP, info_name="tensorkeep")


def page_for(command: str) -> HelpPage:
    return page_of(command, COMMANDS[command].help, COMMANDS[command].params)


def words_of(text: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).split()


@pytest.mark.parametrize("width", [40, 50, 80, 300])
def test_the_commands_are_in_groups_and_nothing_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))

    shown = GROUP.get_help(CONTEXT)

    groups = [
        f"{title}: " + " ".join(f"{command.name} {command.summary}" for command in commands)
        for title, commands in GROUPS.items()
    ]
    assert " ".join(groups) in " ".join(words_of(shown))
    assert max(map(len, shown.split("\n"))) <= min(width, 100)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_argument_and_option_says_what_it_takes(command: str) -> None:
    for parameter in COMMANDS[command].params:
        assert parameter.help, parameter.name
        assert parameter.help.endswith((".", "…")), parameter.name
        if parameter.param_type_name == "argument" or not parameter.is_flag:
            assert parameter.metavar, f"{parameter.name} would be shown without what it takes"
        if parameter.nargs == -1:
            assert parameter.metavar.endswith("..."), f"{parameter.name} would be shown as a single one"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_no_types_of_python(run: Any, command: str) -> None:
    done = run(*command.split(), "--help", env=os.environ | {"COLUMNS": "60"})

    assert (done.returncode, done.stderr) == (0, "")
    assert not re.search(r"<\w+>|\b(str|int|bool|TEXT]|INTEGER|BOOLEAN)\b", done.stdout)
    for section in page_for(command).sections:
        assert f"\n{section.title}:\n" in done.stdout
        assert all(term in done.stdout for term, _ in section.rows)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_shows_its_commands(run: Any, family: str) -> None:
    done = run(family, "--help")

    assert (done.returncode, done.stderr) == (0, "")
    own = [name.removeprefix(f"{family} ") for name in COMMANDS if name.startswith(f"{family} ")]
    assert own
    assert all(f"\n  {name} " in done.stdout for name in own)


def test_colors_are_for_terminals(run: Any) -> None:
    colored = run("--help", env=os.environ | {"FORCE_COLOR": "1", "TERM": "xterm-256color"}).stdout

    assert words_of(colored) == words_of(run("--help").stdout)
    assert "\x1b[" not in run("--help").stdout


def test_an_option_is_described_in_whole() -> None:
    rows = {term: text for section in page_for("reshard").sections for term, text in section.rows}

    assert page_for("reshard").usage == "reshard [OPTIONS] PATH DIRECTORY"
    assert page_for("slice").usage == "slice [OPTIONS] PATH NAME [INDEX]"
    assert rows["--max-shard-size SIZE"].endswith("500MiB. Default: 5GB.")
    assert rows["--select GLOB"].endswith("Can be repeated.")
    assert rows["--force, --overwrite"].startswith("Replace")
    rows = {term: text for section in page_for("serve").sections for term, text in section.rows}
    assert rows["--token TEXT"].endswith("The environment variable TENSORKEEP_TOKEN does the same.")
    assert rows["-q, --quiet"]


def test_lines_of_examples_are_kept() -> None:
    assert page_for("export").paragraphs[0].count("\n") == 1
    assert isinstance(GROUP, PlainGroup)
