"""A directory as the destination of a save: files wait in a staging directory until one transaction moves them.

The order of a commit, and what a killed process leaves, are described in `transport/atomic/`. In a directory several
processes can also fill one file: `reserve` makes the files, `collect` completes their headers.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from typing import Final

import msgspec

from tensorkeep.arrays import TensorToWrite
from tensorkeep.checkpoint.saving._index_text import text_of_index
from tensorkeep.checkpoint.saving._options import SaveOptions
from tensorkeep.checkpoint.saving._plan import SavePlan
from tensorkeep.checkpoint.saving._removal import FileNames, OldFiles, exists
from tensorkeep.checkpoint.saving._reuse import OlderFiles
from tensorkeep.checkpoint.verifying import sha256_of, tree_over
from tensorkeep.digests import digest_of
from tensorkeep.digests.blocks import BlockTree
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import SourceMissingError, as_transport_error
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.safetensors import StrayShardWarning, open_file, strays_beside
from tensorkeep.layout import ShardRecord, blocks_name
from tensorkeep.parallel import ProgressMeter, parallel_map
from tensorkeep.tensors import BlockStream, Sealing, encrypted_nbytes, sealed_head, write_file
from tensorkeep.texts import listed
from tensorkeep.transport import PartialFile, Reserved, Transaction, open_source, sync_directory, transaction

_STORED: Final = OpenOptions(as_stored=True)

_MAX_WRITERS: Final = 4
"""Threads that write or hash files side by side; one disk is not faster with more."""


class Place(msgspec.Struct, frozen=True):
    """Where a tensor goes.

    Attributes:
        file: Number of the file, from 0.
        start: Its first byte there.
    """

    file: int
    start: int


class Reservation(msgspec.Struct, frozen=True):
    """Files of their final size, which several processes fill.

    Attributes:
        files: The files.
        places: Name of a tensor, or of a piece of one, to where it goes.
    """

    files: tuple[Reserved, ...]
    places: dict[str, Place]


class DirectoryDestination:
    """Implements `Destination`."""

    max_writers = min(_MAX_WRITERS, os.cpu_count() or 1)

    def __init__(self, directory: str, plan: SavePlan, options: SaveOptions) -> None:
        self._directory = directory
        self._plan = plan
        self._options = options
        self._older = OlderFiles(options.reuse.shards.values() if options.reuse is not None else ())
        self._records: dict[str, ShardRecord] = {}
        self._open = ExitStack()

    def open(self) -> None:
        """Take the lock of the checkpoint; what a dead process left there is finished or removed."""
        durable = self._options.durable
        directory = self._open.enter_context(made_directory(self._directory, durable=durable))
        self._transaction: Transaction = self._open.enter_context(
            transaction(directory, self._options.stem, durable=durable)
        )

    def with_plan(self, plan: SavePlan) -> DirectoryDestination:
        """Return this destination, as open as it is, for another plan."""
        other = copy(self)
        other._plan = plan
        return other

    def scratch(self, name: str) -> tuple[PartialFile, str]:
        """Make a file beside the staged ones, which is removed with them; return its path too."""
        path = self._transaction.path_of(name)
        return PartialFile(path, 0), path

    def stage(self, file: str, on_written: Callable[[int], None]) -> None:
        """Write a file into the staging directory, or link it to an equal file of an older checkpoint."""
        to_write = self._plan.files[file]
        head = self._linked(file, to_write, on_written)
        if head is None:
            head, tree = self._written(file, to_write, on_written)
        else:
            tree = (
                tree_over(open_file(self._transaction.path_of(file), _STORED))
                if self._options.block_digests
                else None
            )
        nbytes = os.path.getsize(self._transaction.path_of(file))
        self._records[file] = self._record(file, head, nbytes, self._blocks_root(file, tree))

    def _linked(
        self, file: str, to_write: Mapping[str, TensorToWrite], on_written: Callable[[int], None]
    ) -> bytes | None:
        if not self._plan.index_file:
            return None
        same = self._older.find(
            to_write, self._plan.metadata, sealing=self._sealing(file), arrangement=self._options.arrangement
        )
        if same is None:
            return None
        is_done = self._transaction.link(file, same.source, same.head, on_written=on_written)
        return same.head if is_done else None

    def _written(
        self, file: str, to_write: Mapping[str, TensorToWrite], on_written: Callable[[int], None]
    ) -> tuple[bytes, BlockTree | None]:
        with self._transaction.file(file, on_written=on_written) as sink, BlockStream() as blocks:
            head = write_file(
                sink,
                to_write,
                self._plan.metadata,
                state=self._state,
                sealing=self._sealing(file),
                arrangement=self._options.arrangement,
                blocks=blocks if self._options.block_digests else None,
            )
            return head, blocks.tree

    def _blocks_root(self, file: str, tree: BlockTree | None) -> str | None:
        """Write the file with the block digests, and return its root."""
        if tree is None:
            return None
        with self._transaction.file(blocks_name(file), syncs=False) as sink:
            sink.write([tree.file])
        return tree.root.hex()

    def _sealing(self, file: str) -> Sealing:
        index = self._plan.index_file
        return Sealing(index, self._options.encryption, file if index else None)

    @property
    def _state(self) -> str | None:
        """What the file itself says of the state: nothing where the index does."""
        return None if self._plan.index_file else self._plan.prepared.state

    def _record(self, file: str, head: bytes, nbytes: int, blocks: str | None = None) -> ShardRecord:
        sha256 = sha256_of(open_source(self._transaction.path_of(file))) if self._options.sha256 else None
        return ShardRecord(nbytes, digest_of(head).hex(), sha256, blocks)

    def reserve(self) -> Reservation:
        """Make every file at its final size, for several processes to fill."""
        files: list[Reserved] = []
        places: dict[str, Place] = {}
        for number, file in enumerate(self._plan.files):
            head, entries = self._head(file, None)
            nbytes = len(head) + sum(entry.nbytes for entry in entries.values())
            if self._options.encryption is None:
                places |= {name: Place(number, len(head) + entry.data_offsets[0]) for name, entry in entries.items()}
            else:  # it is written in one go
                nbytes = encrypted_nbytes(head, nbytes, self._sealing(file))
            files.append(self._transaction.reserve(file, nbytes))
        return Reservation(tuple(files), places)

    def _head(self, file: str, digests: Mapping[str, bytes] | None) -> tuple[bytes, Mapping[str, TensorEntry]]:
        to_write, metadata = self._plan.files[file], self._plan.metadata
        return sealed_head(
            to_write,
            metadata,
            state=self._state,
            sealing=self._sealing(file),
            digests=digests,
            arrangement=self._options.arrangement,
        )

    def refresh(self) -> None:
        """Show that this save is alive while other processes write."""
        self._transaction.refresh()

    def collect(self, results: Mapping[str, bytes]) -> None:
        """Complete reserved files, by the digests of tensors and pieces of them; encrypted ones by their headers."""
        heads: Mapping[str, bytes] = {file: results[file] for file in self._plan.files if file in results}
        if self._options.encryption is None:
            heads = {file: self._head(file, results)[0] for file in self._plan.files}
        for file, head in heads.items():
            self._transaction.admit(file, head)

        def record(file: str) -> None:
            path = self._transaction.path_of(file)
            self._records[file] = self._record(file, heads[file], os.path.getsize(path))

        n_threads = min(len(heads), self.max_writers) if self._options.sha256 else 1
        parallel_map(record, heads, n_threads=n_threads, meter=ProgressMeter(None, 0))

    def commit(self) -> None:
        """Move the staged files to their places and remove the old ones."""
        with self._open:
            index_file, files = self._plan.index_file, list(self._plan.files)
            if index_file is not None:
                index = self._plan.index(self._records)
                files += index.sidecars
                self._transaction.sync(index.sidecars)
                with self._transaction.file(index_file) as sink:
                    sink.write([text_of_index(index, self._options.encryption)])
            staged = {file: self._transaction.path_of(file) for file in self._plan.files}
            described = self._options.describe(staged) if self._options.describe is not None else {}
            for name, content in {**(self._options.companions or {}), **described}.items():
                with self._transaction.file(name) as sink:
                    sink.write([content])
            if self._options.before_commit is not None:
                self._options.before_commit(staged)
            names = FileNames.of_safetensors(self._options.stem)
            commit_files(self._transaction, self._directory, files, index_file, names)
        warn_of_strays(self._directory, self._options.stem)

    def abandon(self) -> None:
        """Remove what was staged and release the lock."""
        with suppress(_AbandonedError), self._open:
            raise _AbandonedError


class _AbandonedError(Exception):
    """Ends the transaction without a commit."""


def commit_files(
    staged: Transaction, directory: str, shards: Collection[str], index_file: str | None, names: FileNames
) -> None:
    """Commit staged files as the checkpoint of these names, and remove what only the old checkpoint had."""
    new = {*shards} if index_file is None else {*shards, index_file}
    old = OldFiles.in_directory(directory, names)
    # Readers that know nothing of transactions must not find an old index beside new shards of the same names:
    # where names are used again, the old index goes first and the new one comes last.
    overwrites = index_file is not None and any(exists(directory, name) for name in shards)
    staged.commit(
        first=sorted(old.entries.difference(shards)) if overwrites else (),
        last=index_file or next(iter(shards)),
        remove=sorted(old.obsolete(new)),
    )


def warn_of_strays(directory: str, stem: str) -> None:
    """Name files beside a new checkpoint that other programs may take for a part of it."""
    strays = [finding.shard for finding in strays_beside(directory, stem)]
    if strays:
        warnings.warn(
            f"{directory}: files of other saves are beside the new checkpoint: {listed(strays)}. Move them away if"
            " they are not needed: programs that choose files by name may load them",
            StrayShardWarning,
            stacklevel=5,
        )


@contextmanager
def made_directory(directory: str, *, durable: bool) -> Iterator[str]:
    """Make the directory if it is missing, and remove it again if the save fails."""
    made = False
    try:
        os.mkdir(directory)
        made = True
        if durable:
            sync_directory(os.path.dirname(os.path.abspath(directory)))
    except FileExistsError:
        pass
    except FileNotFoundError as error:
        raise SourceMissingError(
            "could not make the directory", path=directory, found=error.strerror, hint="Create its parent first"
        ).numbered(error.errno) from None
    except OSError:
        with as_transport_error("could not make the directory", directory):
            raise
    try:
        yield directory
    except BaseException:
        if made:
            with suppress(OSError):
                os.rmdir(directory)
        raise
