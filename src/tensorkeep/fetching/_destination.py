"""Where the files of a fetch go, and how all of them appear there at once.

Files of one directory change as a save of a checkpoint changes them, and what else lies there stays. A directory with
a manifest, or with folders in it, is replaced as `save_folder` replaces it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from tensorkeep.checkpoint import FileNames, commit_files, save_folder
from tensorkeep.errors import SourceMissingError, UnsupportedError, as_transport_error
from tensorkeep.fetching._plan import Plan
from tensorkeep.fetching._staging import Staging
from tensorkeep.kinds.registry import known_suffixes
from tensorkeep.layout import MANIFEST, stem_of_index
from tensorkeep.transport import LocalFile, Transaction, transaction

_STAGING: Final = ".{}.tensorkeep-fetch"


class Destination(msgspec.Struct, frozen=True):
    """Where files go.

    Attributes:
        given: What the caller said.
        directory: The directory.
        name: What a single file is to be called; None where names stay.
    """

    given: str
    directory: str
    name: str | None

    def path_of(self, name: str) -> str:
        """Return where a file belongs."""
        return os.path.join(self.directory, self.name or os.path.join(*name.split("/")))

    @contextmanager
    def publishing(self, plan: Plan, *, durable: bool) -> Iterator[tuple[str, Callable[[Staging], None]]]:
        """Keep all others from writing there, until the files are published or the block ends."""
        if plan.source is not None and plan.source.yields and plan.entry is None:
            _refuse_if_hidden(self.directory)
        if plan.source is None or not plan.is_flat:
            with save_folder(self.directory, durable=durable) as new:
                yield self.staging(plan), lambda staging: _fill(new, plan, staging)
            return
        stem = self.name or plan.stem
        with _made(self.directory), transaction(self.directory, stem, durable=durable) as commit:
            yield self.staging(plan), lambda staging: self._switch(plan, staging, commit)

    def staging(self, plan: Plan) -> str:
        """Return the directory in which files arrive."""
        directory = os.path.realpath(self.directory)
        if plan.source is None or not plan.is_flat:
            directory, stem = os.path.split(directory)
        else:
            stem = self.name or plan.stem
        return os.path.join(directory, _STAGING.format(stem))

    def _switch(self, plan: Plan, staging: Staging, commit: Transaction) -> None:
        if all(_are_one(staging.path_of(file.name), self.path_of(file.name)) for file in plan.files):
            return
        for file in plan.files:
            self._keep_mode(file.name, staging)
            commit.link(self.name or file.name, LocalFile(staging.path_of(file.name), backend="pread"), b"")
        source = plan.source
        if self.name is not None or source is None or not source.entries:
            commit.commit(last=self.name or plan.files[0].name)
            return
        names = FileNames(source.entries, source.is_index, source.suffixes)
        commit_files(commit, self.directory, plan.shards, plan.index, names)

    def _keep_mode(self, name: str, staging: Staging) -> None:
        """Let a file that replaces another have its mode."""
        with suppress(OSError):
            before = os.lstat(self.path_of(name))
            if stat.S_ISREG(before.st_mode):
                os.chmod(staging.path_of(name), stat.S_IMODE(before.st_mode))


def _are_one(path: str, other: str) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.lstat(other))
    except OSError:
        return False


def _refuse_if_hidden(directory: str) -> None:
    """Refuse a directory that would be opened as something else than the pickles that come."""
    with suppress(OSError):
        names = os.listdir(directory)
        found = next((name for name in names if name.endswith(".safetensors") or stem_of_index(name)), None)
        if found is not None:
            raise UnsupportedError(
                "the directory has safetensors files, which would be opened and not these pickles",
                path=directory,
                found=found,
                hint="Fetch into another directory",
            )


def destination_of(given: str | os.PathLike[str], plan: Plan) -> Destination:
    """Say where files go: into a directory, or for one file to a path that is named like one."""
    path = os.fsdecode(given)
    if os.path.isdir(path) or not path.endswith(known_suffixes()):
        inside = os.path.join(path, plan.entry or "")
        return _of_file(inside) if plan.is_one_file and os.path.islink(inside) else Destination(path, path, None)
    if not plan.is_one_file:
        raise UnsupportedError(
            "several files go to a directory", path=path, expected="the name of a directory", found="that of a file"
        )
    return _of_file(path)


def _of_file(path: str) -> Destination:
    """Return the destination of a single file; a symbolic link is followed, and stays."""
    directory, name = os.path.split(os.path.realpath(path) if os.path.islink(path) else path)
    return Destination(path, directory or os.curdir, name)


@contextmanager
def _made(directory: str) -> Iterator[None]:
    """Make the directory if it is missing, and remove it again if nothing stays in it."""
    is_new = not os.path.isdir(directory)
    if is_new:
        try:
            with as_transport_error("could not make the directory", directory), suppress(FileExistsError):
                os.mkdir(directory)
        except SourceMissingError as error:
            raise error.with_fields(hint="Create its parent first") from None
    try:
        yield
    except BaseException:
        if is_new:
            with suppress(OSError):
                os.rmdir(directory)
        raise


def _fill(new: str, plan: Plan, staging: Staging) -> None:
    """Give all files another name in the directory that is about to appear; its manifest is made anew."""
    for file in plan.files:
        if file.name == MANIFEST:
            continue
        path = os.path.join(new, *file.name.split("/"))
        with as_transport_error("could not write the file", path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            staging.give(file.name, path)
