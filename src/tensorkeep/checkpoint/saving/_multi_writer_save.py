"""A checkpoint that several processes write together: planned, staged and committed by one, filled in by all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

import msgspec

from tensorkeep.checkpoint.saving._local_commit import commit_to
from tensorkeep.checkpoint.saving._multi_writer_plan import MultiWriterPlan
from tensorkeep.checkpoint.saving._save import made_directory, refuse_file_name
from tensorkeep.checkpoint.verifying import sha256_of
from tensorkeep.digests import digest_of
from tensorkeep.entries import TensorEntry
from tensorkeep.layout import ShardRecord, emit_index, index_names, weights_name
from tensorkeep.parallel import ProgressMeter, parallel_map
from tensorkeep.tensors import Sealing, check_target, sealed_head
from tensorkeep.transport import Reserved, Transaction, open_source, transaction

_MAX_HASHERS: Final = 4
"""Threads that make the SHA-256 of files side by side."""


class Place(msgspec.Struct, frozen=True):
    """Where a tensor goes.

    Attributes:
        file: Which of the files, from 0.
        start: Its first byte there.
    """

    file: int
    start: int


class MultiWriterSave:
    """A save that is under way; the process that has it holds the lock of the directory.

    The files are there, of their final size, when this is made. When all tensors are in their places, `commit`
    switches to them; `abandon` leaves everything as it was.

    Attributes:
        files: The files that are to be filled.
        places: Name of a tensor, or of a piece, to where it goes.
    """

    def __init__(
        self,
        plan: MultiWriterPlan,
        directory: str | os.PathLike[str],
        *,
        base_name: str = "model",
        variant: str | None = None,
        metadata: Mapping[str, str] | None = None,
        sha256: bool = False,
        durable: bool = True,
    ) -> None:
        self._plan = plan
        self._directory = check_target(directory)
        self._stem = f"{base_name}.{variant}" if variant else base_name
        self._metadata = plan.with_ties(metadata)
        self._sha256 = sha256
        refuse_file_name(self._directory)
        with ExitStack() as stack:
            folder = stack.enter_context(made_directory(self._directory, durable=durable))
            self._staging: Transaction = stack.enter_context(transaction(folder, self._stem, durable=durable))
            self.places: dict[str, Place] = {}
            self.files = tuple(self._reserve(number, file) for number, file in enumerate(plan.files))
            self._open = stack.pop_all()

    def _reserve(self, number: int, file: str) -> Reserved:
        head, entries = self._head(file, None)
        self.places |= {name: Place(number, len(head) + entry.data_offsets[0]) for name, entry in entries.items()}
        return self._staging.reserve(file, len(head) + sum(entry.nbytes for entry in entries.values()))

    def _head(self, file: str, digests: Mapping[str, bytes] | None) -> tuple[bytes, Mapping[str, TensorEntry]]:
        return sealed_head(
            self._plan.files[file],
            self._metadata,
            state=None if self._plan.index_file else self._plan.state,
            sealing=Sealing(index=self._plan.index_file),
            digests=digests,
        )

    def refresh(self) -> None:
        """Give a sign of life, while others write."""
        self._staging.refresh()

    def commit(self, digests: Mapping[str, bytes]) -> None:
        """Switch to the new files, which are filled."""
        with self._open:
            heads = {file: self._head(file, digests)[0] for file in self._plan.files}
            for file, head in heads.items():
                self._staging.admit(file, head)
            index_file = self._plan.index_file
            if index_file is not None:
                with self._staging.file(index_file) as sink:
                    sink.write([emit_index(self._plan.index(self._records(heads)))])
            entries = (weights_name(self._stem), *index_names(self._stem))
            commit_to(list(heads), index_file, self._staging, self._directory, entries)

    def _records(self, heads: Mapping[str, bytes]) -> dict[str, ShardRecord]:
        def record(file: str) -> ShardRecord:
            path = self._staging.path_of(file)
            sha256 = sha256_of(open_source(path)) if self._sha256 else None
            return ShardRecord(os.path.getsize(path), digest_of(heads[file]).hex(), sha256)

        n_threads = min(len(heads), _MAX_HASHERS, os.cpu_count() or 1) if self._sha256 else 1
        records = parallel_map(record, heads, n_threads=n_threads, meter=ProgressMeter(None, 0))
        return dict(zip(heads, records, strict=True))

    def abandon(self) -> None:
        """Remove what was staged, and let go of the lock; without effect on a save that is over."""
        self._open.__exit__(_AbandonedError, _AbandonedError(), None)


class _AbandonedError(Exception):
    """Ends a save of which nothing comes."""
