"""`Kind`: how one kind of file or directory is recognized, opened, checked and fetched.

    find(place)      where its files are, in a form of the kind's choice; None if it is something else
    open(where)      an `Opened`
    check(where)     what can be verified, even if it is too damaged to open
    files(where)     which files to fetch

`tensorkeep.kinds.registry` lists all kinds, and imports one when a path may be of it. Code outside this folder never
asks which one it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, Generic, TypeVar

import msgspec

from tensorkeep.encryption import refuse_plain
from tensorkeep.errors import UnsupportedError
from tensorkeep.kinds.base._checks import Checks
from tensorkeep.kinds.base._opened import Opened
from tensorkeep.kinds.base._options import OpenOptions
from tensorkeep.kinds.base._place import Place
from tensorkeep.layout import stem_of_index

_Where = TypeVar("_Where")


class Files(msgspec.Struct, frozen=True):
    """The files to fetch, and the names that identify the checkpoint in a directory.

    Attributes:
        directory: Their directory.
        stem: The stem of their names, or the only name.
        names: Paths below the directory, separated by `/`; empty if an index lists the shards.
        index: Name of the index, or None.
        entries: Every name that the index or single file may have; empty if any name will do.
        is_index: Whether a name is an index of this kind, of any checkpoint.
        suffixes: Suffixes of its shards.
        yields: Whether safetensors files in the same directory take precedence.
        opens_alone: Whether each file can be opened without the others, to be checked as soon as it is there.
    """

    directory: str
    stem: str
    names: tuple[str, ...] = ()
    index: str | None = None
    entries: tuple[str, ...] = ()
    is_index: Callable[[str], object] = stem_of_index
    suffixes: tuple[str, ...] = ()
    yields: bool = False
    opens_alone: bool = True


class Kind(msgspec.Struct, Generic[_Where], frozen=True):
    """One kind of file or directory.

    Attributes:
        name: What it is, with an article, for messages.
        find: Recognizes it with as few reads as possible, and returns where its files are; None if it is not one.
        open: Opens it.
        check: Returns what can be checked for some tensors or all, if opening it is not enough; the stack closes
            what it opens.
        files: Returns which files to fetch; None if it cannot be fetched.
        suffixes: Suffixes of its files.
        verifies_reads: Whether `verify` checks tensors as they are read; otherwise all are checked on opening.
        proves_reads: Whether it compares what it reads with what was signed; other kinds are read whole before.
        is_converted: Whether it holds more than tensors by name, so only `convert` can make safetensors of it.
        is_gathered: Whether its tensors are gathered from many places, so that everything read through mmap would
            stay in memory.
        only_tensors: Whether it holds nothing that any program would run, so that `scan` calls it clean if it opens.
        engines: Names of other libraries that can read its files, each only if the caller asks for it.
        decrypts: Whether its files may be encrypted, so that it looks at the keys itself.
    """

    name: str
    find: Callable[[Place], _Where | None]
    open: Callable[[_Where, OpenOptions], Opened]
    check: Callable[[_Where, OpenOptions, Iterable[str] | None, ExitStack], Checks] | None = None
    files: Callable[[_Where], Files | None] | None = None
    suffixes: tuple[str, ...] = ()
    verifies_reads: bool = False
    proves_reads: bool = False
    is_converted: bool = False
    is_gathered: bool = False
    only_tensors: bool = False
    engines: tuple[str, ...] = ()
    decrypts: bool = False

    def candidate(self, place: Place) -> Kind[_Where]:  # noqa: ARG002
        """Return itself: it is imported already."""
        return self


class Found(msgspec.Struct, frozen=True):
    """What is at a place: its kind, and where its files are; policies know the kind by the name of its format."""

    kind: Kind[Any]
    where: Any
    format: str = ""
    path: str | None = None

    def open(self, options: OpenOptions) -> Opened:
        """Open it."""
        self._refuse_engine(options)
        if not self.kind.decrypts:
            refuse_plain(options.keys, self.path)
        opened = self.kind.open(self.where, options)
        if not options.dtypes:
            return opened
        try:
            return opened.with_dtypes(options.dtypes)
        except BaseException:
            opened.close()
            raise

    def _refuse_engine(self, options: OpenOptions) -> None:
        if options.engine is not None and options.engine not in self.kind.engines:
            known = " or ".join(f'"{engine}"' for engine in self.kind.engines)
            raise UnsupportedError(
                f"no such library reads {self.kind.name} for tensorkeep",
                expected=f"{known}, or no engine (--engine)" if known else "no engine (--engine)",
                found=repr(options.engine),
            )

    def files(self) -> Files | None:
        """Return its files; None if it cannot be fetched."""
        return None if self.kind.files is None else self.kind.files(self.where)

    def checks(self, options: OpenOptions, names: Iterable[str] | None, files: ExitStack) -> Checks:
        """Return what can be checked for some tensors or all; `files` closes what this opens."""
        self._refuse_engine(options)
        if self.kind.check is not None:
            return self.kind.check(self.where, options, names, files)
        opened = files.enter_context(self.open(options))
        return msgspec.structs.replace(opened.checks(names), pickles=opened.pickles)
