"""Starts a program of readers for each version of Python, and has all of them load files."""

# ruff: noqa: S603 - it starts interpreters of Python

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self, cast

import numpy as np

from fuzz.pickle_seeds import files
from fuzz.scans.chance import Chance
from fuzz.scans.squeezed import METHODS
from tensorkeep.formats.pickles.names import _table

__all__ = ["VERSIONS", "Children", "Finding", "Question", "interpreters"]

VERSIONS = ("3.11", "3.12", "3.13")
"""Versions of Python whose readers are asked; the running one is always among them."""

_TABLE = [*_table._CALLS, *_table.LABELS]
"""The names that readers may resolve."""

_CHILD = Path(__file__).with_name("child.py")


class Question(NamedTuple):
    """A clean file, and the names that `scan` found in it."""

    data: bytes
    names: tuple[str, ...] = ()


class Finding(NamedTuple):
    """What a reader did with a clean file beyond reading it.

    Attributes:
        version: The version of Python.
        reader: The reader, preceded by the archives it went through.
        event: Name of the audit event.
        details: Its arguments.
    """

    version: str
    reader: str
    event: str
    details: str


def interpreters() -> tuple[list[str], list[str]]:
    """Return interpreters of Python, and the versions for which none was found."""
    found, missing = [sys.executable], []
    for version in VERSIONS:
        if version == f"{sys.version_info.major}.{sys.version_info.minor}":
            continue
        candidates = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        found += [str(candidates[-1])] if candidates else []
        missing += [] if candidates else [version]
    return found, missing


@cache
def _harmless_files() -> list[bytes]:
    """Return files for readers to warm up with, whole and cut off."""
    array = io.BytesIO()
    np.savez(array, numbers=np.arange(3), objects=np.array([None, "a"], dtype=object))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("a", pickle.dumps([1]))
    whole = [*files(), array.getvalue(), archive.getvalue(), *(pickle.dumps(["\xe9", b"a"], n) for n in range(5))]
    whole += [method(Chance("0"), pickle.dumps([1])) for method in METHODS]
    return [*whole, *(file[: len(file) // 2] for file in whole)]


class _One:
    """One program of readers."""

    def __init__(self, interpreter: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [interpreter, "-I", str(_CHILD), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )
        self._requests = cast("IO[bytes]", self._process.stdin)
        self._answers = cast("IO[bytes]", self._process.stdout)
        self._requests.write(json.dumps([f"{module}.{name}" for module, name in _TABLE]).encode() + b"\n")
        warming = _harmless_files()
        self._requests.write(json.dumps([len(data) for data in warming]).encode() + b"\n")
        self._requests.write(b"".join(warming))
        self._requests.flush()
        about = json.loads(self._answers.readline())
        self.version: str = about["version"]
        self.libraries: list[str] = about["libraries"]

    def ask(self, questions: Sequence[Question]) -> None:
        about = [[len(question.data), question.names] for question in questions]
        self._requests.write(json.dumps(about).encode() + b"\n")
        self._requests.write(b"".join(question.data for question in questions))
        self._requests.flush()

    def answers(self) -> list[list[Finding] | str]:
        """Return the findings of each file, or why its reader died."""
        results: list[list[list[str]] | str] = json.loads(self._answers.readline())
        return [
            result if isinstance(result, str) else [Finding(self.version, *finding) for finding in result]
            for result in results
        ]

    def end(self) -> None:
        self._requests.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()


class Children:
    """A program of readers for each version of Python; use it in a `with` block.

    Attributes:
        libraries: Version to the libraries whose readers are asked.
    """

    def __init__(self, interpreters: Sequence[str], folder: Path) -> None:
        """Start them.

        Args:
            interpreters: Interpreters of several versions.
            folder: Where they make their files.
        """
        self._all: list[_One] = []
        for interpreter in interpreters:
            self._all.append(_One(interpreter, folder))
        self.libraries = {one.version: one.libraries for one in self._all}

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End them."""
        for one in self._all:
            one.end()

    def ask(self, questions: Sequence[Question]) -> None:
        """Have all readers load files; `answers` waits for them."""
        for one in self._all:
            one.ask(questions)

    def answers(self) -> dict[str, list[list[Finding] | str]]:
        """Return, for each version, the findings of each file, or why the reader died."""
        return {one.version: one.answers() for one in self._all}
