"""Whole files of every kind, to be broken: those that the contract tests write, and richer ones.

Each format's own library writes them.

`python -m fuzz.kinds.seeds FOLDER` writes them, one folder per kind: a process of its own, since those libraries are
large. The name of the file or directory to open is in `open.txt` beside it.
"""

# ruff: noqa: S603 - it starts only this interpreter, and itself

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from fuzz.kinds.rich_seeds import WRITERS

_CONTRACTS = Path(__file__).parents[2] / "tests" / "contracts"
_TARGET = "open.txt"


class Seed(msgspec.Struct, frozen=True):
    """A whole checkpoint.

    Attributes:
        kind: The kind of its files.
        target: Path to open, relative to the folder of its files; `.` for the folder itself.
        files: Relative path to content of each file.
    """

    kind: str
    target: str
    files: dict[str, bytes]


def write_seeds(folder: Path) -> None:
    """Write the files of every contract below a folder, in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, str(folder)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL)


def read_seeds(folder: Path) -> list[Seed]:
    """Return what `write_seeds` has written, sorted by kind."""
    return [_seed(kind) for kind in sorted(folder.iterdir())]


def _seed(kind: Path) -> Seed:
    root = kind / "files"
    files = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
    return Seed(kind.name, (kind / _TARGET).read_text(), files)


def _write(folder: Path) -> None:
    from tests.contracts.kind import KindContract

    for module in sorted(_CONTRACTS.glob("test_kinds*.py")):
        importlib.import_module(f"tests.contracts.{module.stem}")
    for contract in _subclasses(KindContract):
        _save(folder / contract.__name__.removeprefix("Test"), partial(contract().save, contract.arrays))
    for name, write in WRITERS.items():
        _save(folder / name, write)


def _save(home: Path, write: Callable[[Path], Path]) -> None:
    """Write the files of one kind, and which of them to open."""
    root = home / "files"
    root.mkdir(parents=True)
    (home / _TARGET).write_text(str(write(root).relative_to(root)))


def _subclasses(base: type) -> list[type]:
    found = [sub for cls in base.__subclasses__() for sub in (cls, *_subclasses(cls))]
    return [cls for cls in found if cls.__name__.startswith("Test") and cls.__name__ != "TestToys" and not cls.engine]


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
