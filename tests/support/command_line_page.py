"""Writes the reference of the command line from the commands: `python -m tests.support.command_line_page`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from tensorkeep.cli import app
from tensorkeep.cli.commands import GROUPS
from tensorkeep.cli.help import HelpPage, Section, page_of
from tests.support import ROOT

PAGE = ROOT / "docs" / "reference" / "command-line.md"

_BEGINNING = """\
# Command line

`pip install 'tensorkeep[cli]'` installs the command `tensorkeep`; `python -m tensorkeep` is the same program.
`tensorkeep --help` lists the commands. `tensorkeep inspect --help` describes one of them, as below.

## What all commands share

**The exit status** is an answer:

| status | meaning |
|--:|---|
| 0 | done; whole, equal, nothing dangerous |
| 1 | a finding: `verify` found damage, `check` a mistake, `diff` a difference, `scan` a danger |
| 2 | no answer, or nothing was done: wrong usage, a missing or unreadable file, a refusal, no digests to verify |
| 130 | interrupted by Ctrl-C |
| 141 | the reader of the output closed it, such as `head` |

**Errors** are one line on standard error. With `--json`, standard output has exactly one JSON document: the result,
or an object whose only member is `error`:

```json
{
  "error": {
    "kind": "SourceMissingError",
    "message": "No such file or directory: model.safetensors",
    "path": "model.safetensors",
    "tensor": null,
    "expected": null,
    "found": null,
    "hint": null,
    "text": "No such file or directory: model.safetensors"
  }
}
```

`kind` is the name of an [error](../errors.md) or of a Python exception, or `UsageError`. `text` is the line that
would be printed; the other members are its parts, or null.

**Results.** `-o` names the directory or file to write, in every command that makes one from others. It may be the
last argument instead where the number of sources is fixed, and in `convert` and `join`.

**Replacing.** Without asking, a command replaces only its own source, and `fetch` only an earlier download of the
same URL. Before it replaces anything else, it asks; without a terminal, or with `--json`, it stops with status 2.
`--force` answers yes. The result names the files that were replaced or removed. If a command is stopped, the
destination holds its old content or the complete new one.

**Completion.** `tensorkeep --install-completion` lets the Tab key complete commands, options and paths in bash, zsh,
fish or PowerShell, and also the names of tensors in a local checkpoint, such as after `tensorkeep slice
model.safetensors`.

**Colors** appear only on terminals, unless the environment variable `NO_COLOR` is set.
"""


def page() -> str:
    """Return the text of the page."""
    return "\n".join([_BEGINNING, *_groups()])


def _groups() -> Iterator[str]:
    for title, commands in GROUPS.items():
        yield f"## {title}\n"
        for command in commands:
            parser = parser_of(command.name)
            yield from _command(command.name, page_of(f"tensorkeep {command.name}", parser.help, parser.params))


def parser_of(name: str) -> Any:
    """Return what parses the arguments of a command, whose name may have two words."""
    parser: Any = typer.main.get_command(app)
    for word in name.split():
        parser = parser.commands[word]
    return parser


def _command(name: str, page: HelpPage) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"```sh\n{page.usage}\n```\n"
    for text in (page.summary, *page.paragraphs):
        lines = text.split("\n")
        yield "```sh\n" + "\n".join(map(str.strip, lines)) + "\n```\n" if len(lines) > 1 else _escaped(text) + "\n"
    yield from map(_table, page.sections)


def _table(section: Section) -> str:
    rows = [f"| {_code(term)} | {_escaped(text)} |" for term, text in section.rows]
    return "\n".join([f"| {section.title.lower()} | |", "|---|---|", *rows, ""])


def _code(text: str) -> str:
    return "`" + text.replace("|", r"\|") + "`"


def _escaped(text: str) -> str:
    """Write options and quoted words as code, and let nothing else mean anything in Markdown."""
    text = re.sub(r"(?<!\w)'([^']+)'(?!\w)", r"`\1`", text)
    text = _outside_code(r"(?<![\w'-])(--?[a-z][\w-]*)", r"`\1`", text)
    return _outside_code(r"([*_<\[\]])", r"\\\1", text)


def _outside_code(pattern: str, replacement: str, text: str) -> str:
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if part.startswith("`") else re.sub(pattern, replacement, part) for part in parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
