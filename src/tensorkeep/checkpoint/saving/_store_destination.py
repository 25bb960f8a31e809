"""A store as the destination of a save: nothing can be renamed or locked, and several saves may run at once.

1. Shards are sent under names that no other save uses, so nothing that readers see changes.
2. One conditional write replaces the index that `open` found, and no other. **This is the commit.**
3. What only the old index names is removed.

A checkpoint of one file without an index is one object, whose write is the commit.

A removal begins with such a write too: a note of what goes takes the place of the index.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from tensorkeep.checkpoint.saving._index_text import text_of_index
from tensorkeep.checkpoint.saving._options import SaveOptions
from tensorkeep.checkpoint.saving._plan import SavePlan
from tensorkeep.checkpoint.saving._removal import OldFiles
from tensorkeep.checkpoint.saving._upload import Sibling, UploadedFile, UploadSpec, remove_objects
from tensorkeep.errors import (
    AccessDeniedError,
    BusyError,
    FormatError,
    IntegrityError,
    SourceChangedError,
    SourceMissingError,
    TensorkeepError,
    TransportError,
    UnsupportedError,
)
from tensorkeep.kinds.safetensors import Checkpoint, TensorFile, as_saved_directory
from tensorkeep.layout import Index, blocks_name, index_names, parse_index, parse_removed
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.signing import PROVENANCE_SUFFIX, USUAL, covered_names, read_signature
from tensorkeep.tensors import FileBody, Sealing, file_body
from tensorkeep.transport import ByteRange, RemotePath, Version, is_remote

_NOT_COMMITTED: Final = AccessDeniedError, SourceChangedError, UnsupportedError
"""Errors after which the index is surely not the new one. After any other, the answer may have been lost."""

_N_UPLOADS: Final = 4

_PATIENCE_S: Final = 10.0
"""Seconds to wait for a removal: deleting some files takes no longer."""

_PAUSE_S: Final = 0.2


class ExistingIndex(msgspec.Struct, frozen=True):
    """The index in the store.

    Attributes:
        name: Of its file.
        version: What the commit must find, so that a save that came since is not overwritten.
        index: Its content; None if it cannot be read.
        is_going: Whether the checkpoint is being removed.
    """

    name: str
    version: Version
    index: Index | None
    is_going: bool = False


class StoreDestination:
    """Implements `Destination`."""

    max_writers = _N_UPLOADS

    def __init__(self, directory: RemotePath, plan: SavePlan, options: SaveOptions) -> None:
        self._directory = directory
        self._plan = plan
        self._options = options
        self._old: ExistingIndex | None = None
        self._spec: UploadSpec | None = None
        self._lone: tuple[FileBody, Callable[[int], None]] | None = None
        self._uploaded: dict[str, UploadedFile] = {}

    def open(self) -> None:
        """Look at the index that the commit will replace; there is no lock to take."""
        self._old = old = existing_index(self._directory, index_names(self._options.stem))
        # An index that exists has to be replaced: left alone, it would still be what readers find.
        index_file = old.name if old else self._plan.index_file
        if index_file is not None:
            existing = old.index.shards if old and old.index else None
            token = secrets.token_hex(4)
            metadata, sha256 = self._plan.metadata, self._options.sha256
            self._spec = UploadSpec(
                self._options.stem,
                token,
                index_file,
                metadata,
                sha256,
                existing or {},
                self._options.arrangement,
                self._options.block_digests,
                _sibling_of(self._directory, self._options.reuse),
            )

    @property
    def upload_spec(self) -> UploadSpec:
        """What other processes need to send files of the plan."""
        if self._spec is None:
            raise UnsupportedError("the save is over, or was not begun", path=self._directory)
        return self._spec

    def stage(self, file: str, on_written: Callable[[int], None]) -> None:
        """Send a file; one without an index would be found at once, so it is sent by the commit."""
        to_write = self._plan.files[file]
        if self._spec is None:
            body = file_body(
                to_write,
                self._plan.metadata,
                state=self._plan.prepared.state,
                sealing=Sealing(encryption=self._options.encryption),
                arrangement=self._options.arrangement,
            )
            self._lone = body, on_written
        else:
            self._uploaded[file] = self._spec.upload(
                self._directory, file, to_write, on_written, self._options.encryption
            )

    def refresh(self) -> None:
        """Do nothing: there is no lock that could look dead."""

    def collect(self, results: Mapping[str, bytes]) -> None:
        """Take in what other processes have sent: file of the plan to an encoded `UploadedFile`."""
        self._uploaded |= {file: msgspec.msgpack.decode(text, type=UploadedFile) for file, text in results.items()}

    def commit(self) -> None:
        """Replace the index by one of the new files, or write the only file."""
        if self._lone is not None:
            (file,), (body, on_written) = self._plan.files, self._lone
            self._show_staged({})
            self._directory.joined(file).put(body, on_written=on_written)
            return
        spec, self._spec = self.upload_spec, None  # from here on `abandon` is too late: the commit cleans up itself
        names = {file: uploaded.name for file, uploaded in self._uploaded.items()}
        before = self._old.version if self._old else None
        is_switching = False
        try:
            self._show_staged(names)
            index = self._plan.index({file: uploaded.record for file, uploaded in self._uploaded.items()})
            index = index.renamed(names)
            text = text_of_index(index, self._options.encryption, names)
            is_switching = True
            self._directory.joined(spec.index_file).swap(text, before)
        except BaseException as error:
            if not is_switching or isinstance(error, _NOT_COMMITTED):
                self._take_back(_with_sidecars(names.values(), spec))
            raise
        # Only now: until the index is replaced, readers of the old checkpoint need its files.
        self._remove_old(new=[spec.index_file, *index.files, *index.sidecars])

    def _show_staged(self, names: Mapping[str, str]) -> None:
        if self._options.before_commit is not None:
            self._options.before_commit({file: self._directory.joined(name) for file, name in names.items()})

    def abandon(self) -> None:
        """Remove everything that any process sent, or may have sent."""
        spec, self._spec = self._spec, None
        if spec is not None:
            names = [spec.name_of(file) for file in self._plan.files]
            remove_objects(self._directory, _with_sidecars(names, spec))

    def _take_back(self, names: Iterable[str]) -> None:
        """Remove what was sent, except files that were there before or that the present index names.

        Where an answer was lost, this save may have been committed for a moment, and the next one may use its files.
        """
        with suppress(TransportError):
            present = _index_at(self._directory, index_names(self._options.stem))
            remove_objects(self._directory, set(names) - _files_of(self._old) - _files_of(present))

    def _remove_old(self, new: Iterable[str]) -> None:
        old = OldFiles.in_store(self._options.stem, self._old.index if self._old else None)
        names = old.obsolete(set(new))
        if self._old is not None:
            usual = (USUAL, self._options.stem + PROVENANCE_SUFFIX)
            names |= {name for name in usual if _is_stale(self._directory, name, {*names, *new})}
        errors = remove_objects(self._directory, names)
        if errors:
            raise errors[0].with_fields(
                message=f"the checkpoint is saved, but files of the old one are left: {errors[0].message}"
            ) from None


def _is_stale(directory: RemotePath, name: str, changed: Collection[str]) -> bool:
    """Whether a file of this name, if there is one, says something of a file that changes."""
    with suppress(TensorkeepError):
        return not covered_names(read_signature(directory.joined(name)), name).isdisjoint(changed)
    return False


def _with_sidecars(names: Collection[str], spec: UploadSpec) -> list[str]:
    return [*names, *(map(blocks_name, names) if spec.block_digests else ())]


def _files_of(existing: ExistingIndex | None) -> set[str]:
    return {*existing.index.files, *existing.index.sidecars} if existing and existing.index else set()


def _sibling_of(directory: RemotePath, reused: Checkpoint | TensorFile | None) -> Sibling | None:
    """Return a checkpoint in the same parent directory, by what its index says of its files."""
    older = None if reused is None else as_saved_directory(reused)
    if older is None or not older.base.index.shards or not is_remote(older.directory):
        return None
    parent, name = RemotePath.of(older.directory).split()
    return Sibling(name, older.base.index.shards) if parent.fingerprint == directory.split()[0].fingerprint else None


def existing_index(directory: RemotePath, names: Iterable[str]) -> ExistingIndex | None:
    """Read the first index that is there under one of these names, if any; wait until one that goes is gone."""
    deadline = time.monotonic() + _PATIENCE_S
    names = list(names)
    while (found := _index_at(directory, names)) and found.is_going:
        if time.monotonic() > deadline:
            raise BusyError(
                "another process is removing the checkpoint that is there",
                path=directory,
                hint="Save again. If that process is dead, a store of steps sweeps an hour later",
            )
        time.sleep(_PAUSE_S)
    return found


def _index_at(directory: RemotePath, names: Iterable[str]) -> ExistingIndex | None:
    for name in names:
        try:
            source = directory.joined(name).open()
        except (SourceMissingError, AccessDeniedError):  # buckets that may not be listed deny what is missing
            continue
        text = bytes(source.read(ByteRange(0, min(source.nbytes, MAX_INDEX_NBYTES))))
        if parse_removed(text) is not None:
            return ExistingIndex(name, source.version, None, is_going=True)
        try:
            index = parse_index(text, source.name, check=False)
        except (FormatError, IntegrityError):
            index = None
        return ExistingIndex(name, source.version, index)
    return None
