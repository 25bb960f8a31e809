"""An existing checkpoint, open and locked for an edit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from tensorkeep.errors import TensorkeepError, UnsupportedError, as_transport_error
from tensorkeep.kinds import OpenOptions, Place
from tensorkeep.kinds.registry import find_kind
from tensorkeep.kinds.safetensors import (
    SAFETENSORS,
    Checkpoint,
    TensorFile,
    different,
    has_duplicate,
    open_safetensors,
    read_index,
)
from tensorkeep.layout import (
    Index,
    Location,
    ShardRecord,
    emit_index,
    index_names,
    locate,
    stem_of_index,
    stem_of_weights,
)
from tensorkeep.transport import Transaction, refuse_url, transaction

_SUFFIX = ".safetensors"


class EditSession(msgspec.Struct, frozen=True):
    """A checkpoint and the transaction that will edit it.

    Attributes:
        location: Its files.
        tensors: The checkpoint; its headers match their digests.
        staging: Receives the new files.
        can_be_finished: Whether the next reader that opens the same path finishes an interrupted edit.
    """

    location: Location
    tensors: Checkpoint | TensorFile
    staging: Transaction
    can_be_finished: bool

    @property
    def index(self) -> Index | None:
        """The index; None for a single file without one."""
        return self.tensors.index

    @property
    def shards(self) -> dict[str, TensorFile]:
        """File name to the open file."""
        return self.tensors.shards

    def index_to_write(self) -> tuple[str, Index]:
        """Return the name of the index and the index, with a record of each file; a single file gets one."""
        name = self.location.index or self._new_index_name()
        index = self.index or self._index_of_single()
        if index.shards is None:
            records = {
                file: ShardRecord(each.source.nbytes, each.header_digest()) for file, each in self.shards.items()
            }
            index = msgspec.structs.replace(index, shards=records)
        return name, index

    def _new_index_name(self) -> str:
        file = self.location.single or ""
        stem = stem_of_weights(file)
        if stem is None:
            raise UnsupportedError(
                "the file name allows no index",
                path=self.tensors.path,
                expected="a name such as model.safetensors, and not a shard's",
                found=file,
            )
        return index_names(stem)[0 if stem.rpartition(".")[2].isidentifier() else -1]

    def _index_of_single(self) -> Index:
        totals = {"total_parameters": self.tensors.n_elements, "total_size": self.tensors.nbytes}
        return Index({name: file for file, shard in self.shards.items() for name in shard}, totals)

    def stage_index(self, index: Index, name: str) -> None:
        """Stage a new index."""
        with self.staging.file(name) as sink:
            sink.write([emit_index(index)])


@contextmanager
def edit_session(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[EditSession]:
    """Lock and open an existing checkpoint for an edit. Without a commit in the block nothing changes."""
    refuse_url(os.fspath(path), hint="Edit a local copy")
    _refuse_other_kinds(os.fspath(path))
    location = _location_of(os.fspath(path))
    entry = os.path.join(location.directory, location.index or location.single or "")
    with (
        transaction(location.directory or os.curdir, location.stem, durable=durable) as staging,
        open_safetensors(entry, OpenOptions(as_stored=True)) as tensors,
    ):
        yield EditSession(location, tensors, staging, can_be_finished=locate(entry) is not None)


def _refuse_other_kinds(path: str) -> None:
    kind = find_kind(Place(path)).kind
    if kind is not SAFETENSORS:
        raise UnsupportedError(
            "only safetensors files are edited",
            path=path,
            found=kind.name,
            hint="`tensorkeep convert` (tensorkeep.convert) converts it to safetensors",
        )


def _location_of(path: str) -> Location:
    """Find the files, with the index of a single file if it has one."""
    location = locate(path) or _alone(path)
    if has_duplicate(location):
        raise different(location, "both, of which only one can be edited")
    if location.single is None or location.index is not None:
        return location
    owner = _owner(location.directory or os.curdir, location.single)
    if owner is None:
        return location
    index_path = os.path.join(location.directory, owner)
    if read_index(index_path).files != (location.single,):
        raise UnsupportedError(
            f"the file is one of the shards of {owner}",
            path=path,
            hint=f"Give {index_path} instead, or its directory",
        )
    return locate(index_path) or location


def _alone(path: str) -> Location:
    directory, name = os.path.split(path)
    return Location(directory, name.removesuffix(_SUFFIX), None, name, None)


def _owner(directory: str, file: str) -> str | None:
    """Return the index that lists a file."""
    with as_transport_error("could not read the directory", directory):
        names = sorted(os.listdir(directory))
    return next((name for name in names if stem_of_index(name) and _lists(directory, name, file)), None)


def _lists(directory: str, index: str, file: str) -> bool:
    try:
        return file in read_index(os.path.join(directory, index)).files
    except TensorkeepError:  # an unreadable index owns nothing
        return False
