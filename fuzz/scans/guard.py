"""An audit hook that records what a reader does beyond reading, and stops it before it happens."""

from __future__ import annotations

import contextlib
import os
import sys
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Iterator
from typing import Any

__all__ = ["UNLISTED", "Guard", "StoppedError"]

UNLISTED = "unlisted name"
"""In place of an audit event: a name of the table was resolved that `scan` did not list."""

_HARMLESS_EVENTS = frozenset((
    *("array.__new__", "builtins.id", "compile", "cpython.run_file", "gc.get_objects", "mmap.__new__"),
    *("object.__delattr__", "object.__getattr__", "object.__setattr__", "sys._getframe", "sys._getframemodulename"),
    *("sys.excepthook", "sys.unraisablehook", "time.sleep"),
))
"""Events that have no effect outside the reader. Text is compiled by `ast.literal_eval` too; to run it is `exec`."""

_OWN_EVENTS = frozenset((
    *("open", "os.chmod", "os.chown", "os.listdir", "os.mkdir", "os.remove", "os.rmdir", "os.scandir", "os.utime"),
    *("os.link", "os.symlink", "os.truncate", "shutil.rmtree", "tempfile.mkdtemp", "tempfile.mkstemp"),
))
"""Events that are allowed in the guard's own folder: torch unpacks its oldest files to a temporary one."""

_FOLLOWING_EVENTS = frozenset(("open", "os.chmod", "os.listdir", "os.scandir", "os.truncate"))
"""Events of calls that follow a link; the others are about the link itself."""


_SYSTEM_FILES = frozenset(("/proc/meminfo",))
"""What readers look at themselves: Keras asks how much memory there is before it reads weights."""


class StoppedError(BaseException):
    """A reader was stopped; not an `Exception`, so that readers do not handle it."""


def _is_module(name: str) -> bool:
    """Say whether something can be imported by this name.

    If it cannot, its first part is imported all the same, but only Python's own modules are there everywhere.
    """
    first, *rest = name.split(".")
    return first in sys.stdlib_module_names or all(part.isidentifier() for part in (first, *rest))


class Guard:
    """Watches what readers in this process do, while a `watching` block runs.

    Attributes:
        found: What they did beyond reading: event and details.
    """

    def __init__(self, folder: str, table: frozenset[str]) -> None:
        """Install the hook, which stays as long as the process runs.

        Args:
            folder: Where readers may open, create and remove files.
            table: All names that they may resolve, with their modules.
        """
        self._table = table
        self.found: dict[tuple[str, str], None] = {}
        self._folder = os.path.join(os.path.realpath(folder), "")
        self._listed: frozenset[str] = frozenset()
        self._is_watching = False
        sys.addaudithook(self._hook)

    @contextlib.contextmanager
    def watching(self, listed: frozenset[str]) -> Iterator[None]:
        """Watch the readers in the block.

        Args:
            listed: The names that `scan` found in the file; other names of the table are recorded but not stopped.
        """
        self._listed = listed
        self._is_watching = True
        try:
            yield
        finally:
            self._is_watching = False

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._is_watching or event in _HARMLESS_EVENTS or event.startswith("gc."):
            return
        self._is_watching = False  # what the hook itself does is not recorded
        try:
            if event == "pickle.find_class":
                self._resolve(str(args[0]), str(args[1]))
            elif event == "import" and not _is_module(str(args[0])):
                raise ModuleNotFoundError(args[0])
            elif not (event in _OWN_EVENTS and self._is_own(event, args)):
                self._stop(event, repr(args[:2])[:200])
        finally:
            self._is_watching = True

    def _resolve(self, module: str, name: str) -> None:
        """Check a name; import its module, so that a later import of it is an event."""
        new = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
        names = [known for known in ((module, name), new) if ".".join(known) in self._table]
        if not names and not _is_module(new[0]):
            raise ModuleNotFoundError(module)  # without searching all folders
        if not names:
            self._stop("pickle.find_class", f"{module}.{name}"[:200])
        if self._listed.isdisjoint(map(".".join, names)):
            self.found[UNLISTED, f"{module}.{name}"] = None
        for known_module, _ in names:
            with contextlib.suppress(Exception):
                __import__(known_module)

    def _is_own(self, event: str, args: tuple[Any, ...]) -> bool:
        """Say whether a file is in the guard's folder; a link may lead out of it as long as nobody follows it."""
        path = args[1] if event == "os.symlink" else args[0]
        if isinstance(path, int) or (event in {"os.remove", "os.rmdir"} and args[1] != -1):
            return True  # a folder that was opened before, or something in it
        if path in _SYSTEM_FILES:
            return True
        try:
            folder, name = os.path.split(os.fsdecode(path))
            path = os.path.join(os.path.realpath(folder), name)
            if event in _FOLLOWING_EVENTS:
                path = os.path.realpath(path)
            return os.path.join(path, "").startswith(self._folder)
        except (TypeError, ValueError):
            return False

    def _stop(self, event: str, details: str) -> None:
        self.found[event, details] = None
        raise StoppedError(event)
