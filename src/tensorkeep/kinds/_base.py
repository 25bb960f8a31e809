"""`Kind`: what can be at a path, as a record of how it is recognised, opened, checked and fetched.

    find(place)      where its files are, in whatever form suits the kind; None if something else is there
    open(where)      an `Opened`
    check(where)     what can be verified, also of what is too damaged to be opened
    files(where)     which files a fetch brings

`tensorkeep.kinds.registry.KINDS` lists all of them. Nothing outside of this folder asks which one it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, Generic, TypeVar

import msgspec

from tensorkeep.kinds._checks import Checks
from tensorkeep.kinds._opened import Opened
from tensorkeep.kinds._options import OpenOptions
from tensorkeep.kinds._place import Place
from tensorkeep.layout import stem_of_index

_Where = TypeVar("_Where")


class Files(msgspec.Struct, frozen=True):
    """Which files make up what is at a place, and by which names it is found in a directory.

    Attributes:
        directory: Where they are.
        stem: What the names of its files begin with, or the only name.
        names: Names below the directory, with `/` between folders; the shards of an index are listed in the index.
        index: Name of the index, or None.
        entries: Each name that its index or its single file may have; none for a file that any name will do for.
        is_index: Whether a name is that of an index of this kind, of any checkpoint.
        suffixes: How names of its shards end.
        yields: Whether a directory that also holds safetensors files is opened as these.
    """

    directory: str
    stem: str
    names: tuple[str, ...] = ()
    index: str | None = None
    entries: tuple[str, ...] = ()
    is_index: Callable[[str], object] = stem_of_index
    suffixes: tuple[str, ...] = ()
    yields: bool = False


class Kind(msgspec.Struct, Generic[_Where], frozen=True):
    """One kind of file or directory.

    Attributes:
        name: What it is, with an article, for messages.
        find: Recognises it with as few looks as possible, and says where its files are; None if it is not there.
        open: Opens it.
        check: Returns what can be checked of some tensors or of all, where it takes more than opening it; what it
            opens is closed with the stack.
        files: Says which files a fetch brings; None where it cannot be fetched.
        suffixes: How names of its files end.
        verifies_reads: Whether tensors are checked when they are read, if `verify` is asked for; otherwise all are
            checked when it is opened.
        is_converted: Whether it holds more than tensors by name, so that only `convert` makes safetensors of it.
        is_gathered: Whether its tensors are put together from many places: from mappings, all that is read would stay
            in memory.
    """

    name: str
    find: Callable[[Place], _Where | None]
    open: Callable[[_Where, OpenOptions], Opened]
    check: Callable[[_Where, OpenOptions, Iterable[str] | None, ExitStack], Checks] | None = None
    files: Callable[[_Where], Files | None] | None = None
    suffixes: tuple[str, ...] = ()
    verifies_reads: bool = False
    is_converted: bool = False
    is_gathered: bool = False


class Found(msgspec.Struct, frozen=True):
    """Something that was recognised.

    Attributes:
        kind: What it is.
        where: Where its files are.
    """

    kind: Kind[Any]
    where: Any

    def open(self, options: OpenOptions) -> Opened:
        """Open it."""
        return self.kind.open(self.where, options)

    def files(self) -> Files | None:
        """Return which files it is made of; None where it cannot be fetched."""
        return None if self.kind.files is None else self.kind.files(self.where)

    def checks(self, options: OpenOptions, names: Iterable[str] | None, files: ExitStack) -> Checks:
        """Return what can be checked of some tensors, or of all; `files` closes what that opens."""
        if self.kind.check is not None:
            return self.kind.check(self.where, options, names, files)
        return files.enter_context(self.open(options)).checks(names)
