"""Runs one page of the documentation as a reader would: `python run_page.py PAGE`, in the current directory.

Three kinds of fenced blocks count. `python` is executed, all blocks of a page in one namespace. `console` holds
commands after `$ ` and what they print. `text` directly after a `python` block is what that block prints. In both
kinds of output `...` stands for anything. All other languages are only read.
"""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from sybil import Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser

from tests.support.forks import COMMAND, Server, fork_server

_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n?", re.MULTILINE)
_QUOTED = re.compile(r"'[^']*'")
_FOR_A_SHELL = re.compile(r"[^\w\s=%,.:/-]")


class PythonBlocks:
    """Executes Python and keeps what it printed."""

    def __init__(self) -> None:
        self._execute = PythonEvaluator()
        self.end = 0
        self.printed = ""

    def __call__(self, example: Example) -> str | None:
        printed = StringIO()
        with redirect_stdout(printed):
            failure = self._execute(example)
        self.end = example.region.end
        self.printed = printed.getvalue()
        return failure

    def compare(self, example: Example) -> str | None:
        """Compare a text block with what the Python block right before it printed."""
        if example.document.text[self.end : example.region.start].strip():
            return None
        return difference(example.parsed, self.printed)


class Commands:
    """Runs the commands of console blocks, and compares what they print."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def __call__(self, example: Example) -> str | None:
        _, *parts = _COMMAND.split(example.parsed)
        for command, expected in zip(parts[::2], parts[1::2], strict=True):
            status, printed = self._run(command.replace("\\\n", ""))
            failure = difference(expected, printed)
            if failure:
                return f"$ {command}\n(exit status {status})\n{failure}"
        return None

    def _run(self, command: str) -> tuple[int, str]:
        if command.startswith("tensorkeep ") and not _FOR_A_SHELL.search(_QUOTED.sub("", command)):
            _, *arguments = shlex.split(command)
            done = self._server.run("-m tensorkeep", *arguments, is_one_output=True)
            return done.returncode, done.stdout
        shell = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return shell.returncode, shell.stdout


def difference(expected: str, found: str) -> str | None:
    """Return how two outputs differ, or None where they do not."""
    expected, found = (trimmed(text) for text in (expected, found))
    checker = doctest.OutputChecker()
    if not expected or checker.check_output(expected, found, doctest.ELLIPSIS):
        return None
    return f"expected:\n{expected}\nfound:\n{found}"


def trimmed(text: str) -> str:
    """Drop spaces at the ends of lines, and empty lines at the end."""
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE).strip("\n") + "\n" if text.strip() else ""


def main(page: Path) -> None:
    """Run every block of a page, and print how many were executed."""
    server = fork_server(*COMMAND)
    blocks = PythonBlocks()
    parsers = [
        CodeBlockParser("python", blocks),
        CodeBlockParser("text", blocks.compare),
        CodeBlockParser("console", Commands(server)),
    ]
    document = Sybil(parsers).parse(page)
    document.namespace["__name__"] = "__main__"
    examples = list(document.examples())
    for example in examples:
        example.evaluate()
    print(sum(example.region.evaluator != blocks.compare for example in examples))
    server.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
