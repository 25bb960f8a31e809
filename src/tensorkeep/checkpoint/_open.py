"""A checkpoint as one mapping, whatever the number of its files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any, Self

from tensorkeep.arrays import check_framework
from tensorkeep.checkpoint._examine import Access, Examination
from tensorkeep.checkpoint._findings import Finding, refuse
from tensorkeep.checkpoint._index import Index
from tensorkeep.checkpoint._location import Location
from tensorkeep.checkpoint._pieces import pieces_in_order
from tensorkeep.checkpoint._settle import read_settled
from tensorkeep.collector import PausedCollector
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import IntegrityError, UnsupportedError
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.tensors import LazyTensor, LazyTensors, TensorFile, TensorReader, counted, open_file
from tensorkeep.transport import BACKENDS, Backend, JoinedSource, Openable

__all__ = ["Checkpoint", "StrayShardWarning", "load", "open_checkpoint"]


class StrayShardWarning(UserWarning):
    """A shard lies beside a checkpoint that does not know it; readers that look at names only may take it."""


class Checkpoint(LazyTensors):
    """The tensors of all shards as one read-only mapping of name to `LazyTensor`.

    Nothing but the index and the headers has been read, and they are one set: no shard is missing, cut off, damaged
    or of another save. The order is that of the shards, and within a shard that of the bytes.

    Args:
        location: Its files.
        examination: What the index and the headers say.
        access: How tensors are read.
    """

    def __init__(self, location: Location, examination: Examination, access: Access) -> None:
        """Make the mapping; see the class."""
        self._location = location
        self._index = examination.index
        self._shards = examination.files
        self._owners: dict[str, TensorFile | LazyTensor] = {}
        firsts = {pieces[0]: name for name, pieces in self._index.splits.items() if pieces}
        pieces = {piece for names in self._index.splits.values() for piece in names}
        with PausedCollector():
            for shard in self._shards.values():
                for name in shard.entries:
                    if name in firsts:
                        self._owners[firsts[name]] = self._join(firsts[name], access)
                    elif name not in pieces:
                        self._owners[name] = shard

    def _join(self, name: str, access: Access) -> LazyTensor:
        """Make one tensor of its pieces, which lie in several shards."""
        places = [(self._shards[self._index.weight_map[piece]], piece) for piece in self._index.splits[name]]
        pieces = [shard.entries[piece] for shard, piece in places]
        first = pieces[0]
        rows = [piece.n_rows for piece in pieces_in_order(name, self._index.splits[name]) or ()]
        do_fit = all(
            (piece.dtype, piece.shape) == (first.dtype, (n_rows, *first.shape[1:]))
            for piece, n_rows in zip(pieces, rows, strict=True)
        )
        if not do_fit or any(name in shard.entries for shard in self._shards.values()):
            raise IntegrityError(
                f"the pieces of tensor `{name}` do not fit together",
                path=self.path,
                tensor=name,
                found=", ".join(f"{piece.dtype} {list(piece.shape)}" for piece in pieces[:10]),
            )
        shape = (sum(piece.shape[0] for piece in pieces), *first.shape[1:])
        nbytes = sum(piece.nbytes for piece in pieces)
        parts = [(shard.source, shard.span_of(piece)) for shard, piece in places]
        source = JoinedSource(parts, self.path)
        reader = TensorReader(source, 0, access.framework, access.device)
        return LazyTensor(name, TensorEntry(first.dtype, shape, (0, nbytes)), reader)

    @property
    def path(self) -> str:
        """Path of the index."""
        return self._location.entry

    @property
    def directory(self) -> str:
        """The directory of the shards."""
        return self._location.directory

    @property
    def index(self) -> Index:
        """What the index says."""
        return self._index

    @property
    def shards(self) -> dict[str, TensorFile]:
        """Name of the file to the shard; a new dict."""
        return dict(self._shards)

    @property
    def metadata(self) -> dict[str, str]:
        """The free text of the first shard, which a save gives to all; a new dict."""
        return next((shard.metadata for shard in self._shards.values()), {})

    @property
    def has_metadata(self) -> bool:
        """Whether the first shard has free text at all, be it empty."""
        return any(shard.has_metadata for shard in list(self._shards.values())[:1])

    def shard_of(self, name: str) -> str:
        """Return the file that holds a tensor, or its first rows.

        Args:
            name: The tensor.

        Raises:
            TensorNotFoundError: If there is none of that name.
        """
        self[name]
        first = self._index.splits.get(name, (name,))[0]
        return next(file for file, shard in self._shards.items() if first in shard)

    def _find(self, name: str) -> LazyTensor | None:
        owner = self._owners.get(name)
        return owner if owner is None or isinstance(owner, LazyTensor) else owner[name]

    def __iter__(self) -> Iterator[str]:
        """Give the names, shard by shard in the order of the bytes."""
        return iter(self._owners)

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._owners)

    def __contains__(self, name: object) -> bool:
        """Say whether there is a tensor of that name."""
        return name in self._owners

    def close(self) -> None:
        """Let go of all files; tensors that were read stay valid."""
        for shard in self._shards.values():
            shard.close()

    def __enter__(self) -> Self:
        """Return the checkpoint itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the checkpoint."""
        self.close()

    def __repr__(self) -> str:
        """Return path, number of tensors, shards and size."""
        extent = f"{counted(len(self), 'tensor')} in {counted(len(self._shards), 'shard')}"
        return f"Checkpoint({self.path!r}, {extent}, {self.nbytes:,} bytes)"


def open_checkpoint(
    target: Openable,
    *,
    framework: str = "numpy",
    device: Any = "cpu",
    backend: Backend = "auto",
    variant: str | None = None,
    check: bool = True,
    max_header_nbytes: int = MAX_HEADER_NBYTES,
) -> Checkpoint | TensorFile:
    """Open a checkpoint: a read-only mapping of name to `LazyTensor`.

    Only headers and the index are read, and all of them are checked: against each other, and against the digests
    that were saved with them. Checkpoints of other libraries, which have no digests, open just as well.

    Args:
        target: A directory, an index, a file, its bytes, or a seekable binary file object.
        framework: The array library that tensors come out in: `"numpy"` or `"torch"`.
        device: Where tensors go; anything that torch takes.
        backend: `"mmap"`, `"pread"`, or `"auto"`: mapped unless the file is on a network or FUSE file system.
            Truncating a mapped file ends the process that touches it (SIGBUS); `"pread"` gives an error.
        variant: Such as `"fp16"`, where a directory has `model.fp16.safetensors` or its shards.
        check: Whether to hold headers against the digests that were saved. False reads a checkpoint that another
            program changed on purpose, without its digests.
        max_header_nbytes: Longest header of a single file that is accepted, in bytes.

    Returns:
        A `Checkpoint` of shards, or the `TensorFile` of a single file; both are also context managers.

    Raises:
        SourceMissingError: If there is nothing, or a shard is missing.
        IntegrityError: If the checkpoint is not whole: the message names shards and tensors.
        IndexFileError: If the index is none.
        HeaderError: If a single file is not a whole safetensors file.
        LimitError: If a header or the index is too long.
        UnsupportedError: If the target or an argument is none of the above, a directory has several checkpoints, or
            the digests are of a later version.
        TransportError: If it cannot be read.
    """
    check_framework(framework)
    if backend not in BACKENDS:
        raise UnsupportedError(f"backend {backend!r} is invalid", expected="one of " + ", ".join(BACKENDS))
    access = Access(framework, device, backend, check, max_header_nbytes)
    if not isinstance(target, (str, os.PathLike)):
        return open_file(target, framework=framework, device=device, check=check, max_header_nbytes=max_header_nbytes)
    path = os.fspath(target)
    reading = read_settled(path, variant, access)
    if reading.location is None or reading.examination is None:
        return next(iter(reading.files.values()))
    refuse(reading.findings, path)
    _warn(reading.findings, path)
    return Checkpoint(reading.location, reading.examination, access)


def _warn(findings: list[Finding], path: str) -> None:
    strays = [finding.shard for finding in findings if not finding.is_damage]
    if strays:
        warnings.warn(
            f"{path}: shards that the index does not know: {', '.join(strays[:5])}", StrayShardWarning, stacklevel=3
        )


def load(
    target: Openable,
    *,
    framework: str = "numpy",
    device: Any = "cpu",
    backend: Backend = "auto",
    variant: str | None = None,
    check: bool = True,
) -> dict[str, Any]:
    """Read all tensors of a checkpoint.

    Args:
        target: A directory, an index, a file, its bytes, or a seekable binary file object.
        framework: The array library that tensors come out in: `"numpy"` or `"torch"`.
        device: Where tensors go; anything that torch takes.
        backend: How local files are read; see `open_checkpoint`.
        variant: Such as `"fp16"`, where a directory has `model.fp16.safetensors` or its shards.
        check: Whether to hold headers against the digests that were saved.

    Returns:
        Name to tensor, in the order of the bytes.

    Raises:
        SourceMissingError: If there is nothing, or a shard is missing.
        IntegrityError: If the checkpoint is not whole: the message names shards and tensors.
        IndexFileError: If the index is none.
        HeaderError: If a single file is not a whole safetensors file.
        DtypeError: If a dtype is unknown here or to the framework.
        LimitError: If a tensor has more dimensions than the framework allows.
        UnsupportedError: If an argument is none of the above.
        TransportError: If it cannot be read.
    """
    with open_checkpoint(
        target, framework=framework, device=device, backend=backend, variant=variant, check=check
    ) as tensors:
        return tensors.load()
