"""A directory whose files change all at once, or not at all, when a library saves to it.

    directory/model.safetensors, config.json …       the old files
    directory/.model.tensorkeep-scratch/             the library saves here
    directory/.model.tensorkeep-staging/             the new files are linked here, and committed in one step

Files in sub-folders, such as those of several adapters, are a set of their own in each folder: all sets are complete
before the first one is committed.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from tensorkeep.errors import TensorkeepError, as_transport_error
from tensorkeep.integrations.transformers._weights import split_stem
from tensorkeep.kinds.safetensors import read_index
from tensorkeep.layout import index_name, weights_name
from tensorkeep.transport import LocalFile, Transaction, local_path, transaction

CARD: Final = "README.md"
"""The model card, which libraries extend if it exists."""


@contextmanager
def changed_together(directory: str | os.PathLike[str], stem: str, *, durable: bool = True) -> Iterator[str]:
    """Yield a directory to save to, and replace the old files with what was saved there when the block ends.

    Old files with the same names and the files of the old weights are replaced or removed; all others stay.
    """
    directory = local_path(directory)
    with as_transport_error("could not save to the directory", directory):
        is_new = not os.path.isdir(directory)
        os.makedirs(directory, exist_ok=True)
    place = os.path.realpath(directory)
    scratch = os.path.join(place, f".{stem}.tensorkeep-scratch")
    try:
        with ExitStack() as stack:
            root = stack.enter_context(transaction(place, stem, durable=durable))
            stack.callback(shutil.rmtree, scratch, ignore_errors=True)
            with as_transport_error("could not save to the directory", place):
                _recreate(scratch, place)
            with errors_of_libraries(place):
                yield scratch
            with as_transport_error("could not save to the directory", place):
                _drop_unchanged(scratch, place)
                sets = list(_staged(scratch, place, stem, root, stack, durable=durable))
            for files in sets:
                files.commit()
    except BaseException:
        if is_new:
            with suppress(OSError):
                os.rmdir(place)
        raise


@contextmanager
def errors_of_libraries(path: str) -> Iterator[None]:
    """Turn system errors of a library in the block into a `TransportError` with the path."""
    refused: OSError | None = None
    try:
        yield
    except OSError as error:  # and not ValueError, which `as_transport_error` would turn into one too
        refused = error
    if refused is not None:
        with as_transport_error("could not save", path):
            raise refused


def _recreate(scratch: str, directory: str) -> None:
    """Create the folder to save to; an existing one is from a killed save, since the set is locked."""
    shutil.rmtree(scratch, ignore_errors=True)
    os.mkdir(scratch)
    with suppress(FileNotFoundError):
        shutil.copy2(os.path.join(directory, CARD), scratch)


def _drop_unchanged(scratch: str, directory: str) -> None:
    """Leave the model card alone if the library has not extended it."""
    new, old = os.path.join(scratch, CARD), os.path.join(directory, CARD)
    if os.path.isfile(new) and os.path.isfile(old) and filecmp.cmp(new, old, shallow=False):
        os.unlink(new)


class _Set:
    """Staged files of one directory."""

    def __init__(self, staging: Transaction, directory: str, stem: str, names: list[str]) -> None:
        self._staging = staging
        self._directory = directory
        self._stem = stem
        self._names = names

    def commit(self) -> None:
        """Replace the old files; readers that know no transactions find no weights meanwhile, never a mixture."""
        entries = entries_of(self._stem)
        last = next((name for name in entries if name in self._names), None)
        if last is None:
            if self._names:
                self._staging.commit()
            return
        self._staging.commit(first=entries, last=last, remove=[*entries, *_old_shards(self._directory, self._stem)])


def _staged(
    scratch: str, directory: str, stem: str, staging: Transaction, stack: ExitStack, *, durable: bool
) -> Iterator[_Set]:
    """Stage the files of a folder, after the files of its sub-folders."""
    names: list[str] = []
    for name in sorted(os.listdir(scratch)):
        path, place = os.path.join(scratch, name), os.path.join(directory, name)
        if os.path.isdir(path):
            os.makedirs(place, exist_ok=True)
            inner = stack.enter_context(transaction(place, stem, durable=durable))
            yield from _staged(path, place, stem, inner, stack, durable=durable)
            continue
        if os.path.isfile(place):
            shutil.copymode(place, path)
        staging.link(name, LocalFile(path), b"")
        names.append(name)
    yield _Set(staging, directory, stem, names)


def entries_of(stem: str) -> list[str]:
    """Return the names of files by which weights are opened, the index first."""
    return [index_name(*split_stem(stem)), weights_name(*split_stem(stem))]


def _old_shards(directory: str, stem: str) -> list[str]:
    """Return the shards in the old index, if they are named like shards."""
    is_shard = re.compile(rf"{re.escape(stem)}-[0-9]{{5}}-of-[0-9]{{5}}\.safetensors").fullmatch
    try:
        files = read_index(os.path.join(directory, entries_of(stem)[0]), check=False).weight_map.values()
    except TensorkeepError:  # no index, or not a readable one
        return []
    return sorted({file for file in files if is_shard(file)})
