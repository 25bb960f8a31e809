"""Loads files with every reader of the Python that runs it; started as a program, asked through its standard input.

It forks a process for each batch, with limits on memory and time, since real readers do not survive every file.
"""

# ruff: noqa: BLE001, S110 - readers may raise anything; T201 - it is a program

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import types
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fuzz.scans.guard import Guard, StoppedError
from fuzz.scans.readers import Member, Reader, libraries, members_of, readers

MAX_NBYTES = 2**30
"""Memory that a batch may take, beyond what the process starts with."""

MAX_SECONDS = 1
"""Processor time that one reader may take for one file."""

MAX_CPU_SECONDS = 120
_TIMEOUT_S = 180
_MAX_DEPTH = 4
_IMITATED = ("torch", "numpy", "ml_dtypes")

Finding = tuple[str, str, str]
"""A reader, an event, and its details."""


class _Inert:
    """Takes the place of everything in a library that is not installed, so that pickles run on."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        return object.__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def __setstate__(self, _: Any) -> None:
        pass

    append = extend = add = update = __setitem__ = __call__


class _Imitation(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports modules whose every name is inert."""

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in _IMITATED:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda _: _Inert  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: the module is complete."""


class Child:
    """All readers of this Python, under a guard."""

    def __init__(self, folder: str, table: frozenset[str]) -> None:
        self.libraries = libraries()
        if "torch" not in self.libraries:
            sys.meta_path.insert(0, _Imitation())
        self._readers = readers(self.libraries)
        if "torch" in self.libraries:
            _tell_names_of_packages()
        self._path = os.path.join(folder, "file")
        self._guard = Guard(folder, table)
        signal.signal(signal.SIGPROF, _stop)

    def warm_up(self, data: bytes) -> None:
        """Load a trusted file without the guard, so that readers import now what they would import later."""
        self._load(data, None)

    def load(self, data: bytes, listed: Sequence[str]) -> list[Finding]:
        """Return what the readers did with a file beyond reading it."""
        return self._load(data, frozenset(listed))

    def _load(self, data: bytes, listed: frozenset[str] | None) -> list[Finding]:
        found: dict[Finding, None] = {}
        seen: set[bytes] = set()
        waiting: list[tuple[str, bytes, int]] = [("", data, 0)]
        while waiting:
            place, content, depth = waiting.pop()
            if content in seen:
                continue
            seen.add(content)
            with open(self._path, "wb") as file:
                file.write(content)
            for name, reader in self._readers.items():
                self._run(place + name, reader, content, listed, found)
            if depth < _MAX_DEPTH:
                inside = self._members(place, content, listed, found)
                waiting += [(f"{place}{name} > ", member, depth + 1) for name, member in inside]
        return list(found)

    def _members(
        self, place: str, content: bytes, listed: frozenset[str] | None, found: dict[Finding, None]
    ) -> list[Member]:
        inside: list[Member] = []
        self._run(f"{place}members", lambda data, path: inside.extend(members_of(data, path)), content, listed, found)
        return inside

    def _run(
        self, name: str, reader: Reader, content: bytes, listed: frozenset[str] | None, found: dict[Finding, None]
    ) -> None:
        self._guard.found.clear()
        try:
            if listed is None:
                reader(content, self._path)
            else:
                signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
                with self._guard.watching(listed):
                    reader(content, self._path)
        except (Exception, StoppedError, _TooLongError, SystemExit, KeyboardInterrupt, GeneratorExit):
            pass
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        found.update(dict.fromkeys((name, *what) for what in self._guard.found))


class _TooLongError(BaseException):
    """A reader takes too long."""


def _stop(*_: object) -> None:
    raise _TooLongError


def _tell_names_of_packages() -> None:
    """Have the unpickler of torch.package, which imports in its own way, report the names that it resolves."""
    from torch.package._package_unpickler import PackageUnpickler

    original = PackageUnpickler.find_class

    def find_class(self: Any, module: str, name: str) -> Any:
        sys.audit("pickle.find_class", module, name)
        return original(self, module, name)

    PackageUnpickler.find_class = find_class  # type: ignore[method-assign]


def _silence() -> None:
    """Keep readers away from the program's own streams."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _limit() -> None:
    own = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (own + MAX_NBYTES, own + MAX_NBYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**26, 2**26))


def _batch(child: Child, files: list[tuple[bytes, list[str]]]) -> tuple[list[list[Finding]], str]:
    """Load files in another process; return the findings of each that it finished, and why it ended early."""
    receiver, sender = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(receiver)
        try:
            _silence()
            _limit()
            with os.fdopen(sender, "w") as answers:
                for data, listed in files:
                    answers.write(json.dumps(child.load(data, listed)) + "\n")
                    answers.flush()
            os._exit(0)
        finally:
            os._exit(70)
    os.close(sender)
    done: list[list[Finding]] = []
    with os.fdopen(receiver) as answers:
        while len(done) < len(files) and select.select([answers], [], [], _TIMEOUT_S)[0]:
            line = answers.readline()
            if not line.endswith("\n"):
                break
            done.append([tuple(finding) for finding in json.loads(line)])
    os.kill(process, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return done, f"status {status}"


def _serve(child: Child) -> None:
    """Answer requests: a line of JSON with sizes and listed names, then the files; first those to warm up with."""
    for size in json.loads(sys.stdin.buffer.readline()):
        child.warm_up(sys.stdin.buffer.read(size))
    while line := sys.stdin.buffer.readline():
        files = [(sys.stdin.buffer.read(size), listed) for size, listed in json.loads(line)]
        results: list[list[Finding] | str] = []
        while len(results) < len(files):
            done, end = _batch(child, files[len(results) :])
            results += done
            if len(results) < len(files):
                results.append(end)
        os.write(1, json.dumps(results).encode() + b"\n")


def main() -> None:
    """Serve until the standard input ends."""
    warnings.simplefilter("ignore")
    gc.disable()
    sys.excepthook = sys.unraisablehook = lambda *_: None  # the default hooks open files to show lines
    folder = tempfile.mkdtemp(prefix="tensorkeep-fuzz-", dir=sys.argv[1])
    tempfile.tempdir = folder
    os.chdir(folder)  # events give paths relative to an open folder as if they were in this one
    try:
        if importlib.util.find_spec("torch"):
            import torch

            torch.set_num_threads(1)
        child = Child(folder, frozenset(json.loads(sys.stdin.buffer.readline())))
        os.write(1, json.dumps({"version": sys.version.split()[0], "libraries": child.libraries}).encode() + b"\n")
        _serve(child)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
