"""A command as a page: how it is used, what it does, its arguments and options. Pure.

Typer's own pages name the Python type of each argument, and cut or box what does not fit.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

_KEPT_LINES: Final = "\b\n"
"""What begins a paragraph whose lines are kept, as in click."""


class Row(NamedTuple):
    """An argument, an option or a command, and what it is for."""

    term: str
    text: str


class Section(NamedTuple):
    """Rows under a title."""

    title: str
    rows: list[Row]


class HelpPage(NamedTuple):
    """A page of help.

    Attributes:
        usage: The command line.
        summary: What the command does, in one sentence.
        paragraphs: The rest of the text; examples keep their lines.
        sections: Arguments and options, or groups of commands.
    """

    usage: str
    summary: str
    paragraphs: list[str]
    sections: list[Section]


def page_of(name: str, text: str, parameters: Sequence[Any], groups: Iterable[Section] = ()) -> HelpPage:
    """Describe a command by its docstring and by click's parameters; a command of commands by the groups of these."""
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    options = [each for each in parameters if each.param_type_name == "option" and not each.hidden]
    groups = list(groups)
    words = ["COMMAND ..."] if groups else [_in_usage(each) for each in arguments]
    summary, *paragraphs = _paragraphs(text)
    sections = [
        *groups,
        Section("Arguments", [Row(each.metavar.strip("[]."), each.help or "") for each in arguments]),
        Section("Options", [Row(_term(each), " ".join(_sentences(each))) for each in options]),
    ]
    return HelpPage(
        usage=" ".join([name, *(["[OPTIONS]"] if options else []), *words]),
        summary=summary,
        paragraphs=paragraphs,
        sections=[section for section in sections if section.rows],
    )


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith(_KEPT_LINES):
            yield paragraph.removeprefix(_KEPT_LINES)
        else:
            yield " ".join(paragraph.split())


def _in_usage(argument: Any) -> str:
    word: str = argument.metavar
    return word if argument.required or word.startswith("[") else f"[{word}]"


def _term(option: Any) -> str:
    names = ", ".join(sorted(option.opts, key=len))
    if option.secondary_opts:
        names += f" / {', '.join(option.secondary_opts)}"
    return names if option.is_flag or not option.metavar else f"{names} {option.metavar}"


def _sentences(option: Any) -> Iterator[str]:
    yield option.help or ""
    if option.required:
        yield "Required."
    if option.multiple:
        yield "Can be repeated."
    if option.envvar:
        yield f"The environment variable {option.envvar} does the same."
    if option.default not in {None, ""} and not option.is_flag:
        yield f"Default: {option.default}."
