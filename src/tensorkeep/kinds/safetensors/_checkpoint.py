"""An index and its shards as one read-only mapping of name to lazy tensor."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import Any

from tensorkeep.arrays import ArrayT
from tensorkeep.collector import PausedCollector
from tensorkeep.encryption import Encryption
from tensorkeep.errors import IntegrityError
from tensorkeep.formats import Description
from tensorkeep.kinds.base import Checks, Finding, Opened, OpenOptions, refuse
from tensorkeep.kinds.safetensors._aliases import names_of
from tensorkeep.kinds.safetensors._consistent_read import read_consistently
from tensorkeep.kinds.safetensors._digests import digest_checks
from tensorkeep.kinds.safetensors._examine import Examination, read_index
from tensorkeep.kinds.safetensors._file import TensorFile
from tensorkeep.kinds.safetensors._saved import SavedTensors
from tensorkeep.layout import Index, Location, Piece, pieces_in_order, reach_of
from tensorkeep.tensors import AssembledReader, LazyTensor, PlacedPiece, Reader, assemble
from tensorkeep.texts import counted
from tensorkeep.transport import ByteSource


class StrayShardWarning(UserWarning):
    """A shard file that the index does not list; programs that find shards by name may load it by mistake."""


class SavedDirectory(SavedTensors[ArrayT]):
    """The tensors of an open directory, in which one file names all others, and which a save replaces by another."""

    @property
    @abstractmethod
    def directory(self) -> str:
        """The directory of the files."""

    @property
    @abstractmethod
    def index_metadata(self) -> Mapping[str, Any]:
        """What the file that names the others says beside that."""

    @property
    @abstractmethod
    def base(self) -> Checkpoint[ArrayT]:
        """The checkpoint whose files hold whole tensors: itself, unless its tensors are read through patches."""

    @property
    @abstractmethod
    def patch_files(self) -> tuple[str, ...]:
        """Paths of the patches through which tensors are read, in their order; none if they are stored whole."""

    @abstractmethod
    def is_replaced(self) -> bool:
        """Whether that file is another one by now."""


class Checkpoint(SavedDirectory[ArrayT]):
    """An open sharded checkpoint: the tensors of all shards as one mapping of name to `LazyTensor`.

    Only the index and the headers have been read. They belong together: no shard is missing, truncated, or from
    another save, and no header is damaged. Iteration follows the shards by name, and within a shard the byte order.

    Args:
        location: Its files.
        examination: The index and headers, compared.
        options: How to read tensors.
    """

    def __init__(self, location: Location, examination: Examination, options: OpenOptions) -> None:
        self._location = location
        self._index = examination.index
        self._stored_index = examination.stored
        self._shards = examination.files
        self._numpy_readers: dict[str, Reader] = {}
        with PausedCollector():
            self._joined = {name: self._join(name, options) for name in self._index.splits}
        self._file_of = self._index.file_of_whole()

    def _join(self, name: str, options: OpenOptions) -> LazyTensor:
        """Assemble a tensor from pieces in several shards."""
        pieces = pieces_in_order(name, self._index.splits[name]) or ()
        entries = [self._shards[self._index.weight_map[piece.name]].entries[piece.name] for piece in pieces]
        reach = reach_of(pieces)
        dtype, shape = entries[0].dtype, (*reach, *entries[0].shape[len(reach) :])
        do_fit = all(
            (entry.dtype, entry.shape) == (dtype, piece.region_in(shape).shape)
            for entry, piece in zip(entries, pieces, strict=True)
        )
        if not do_fit or any(name in shard.entries for shard in self._shards.values()):
            raise IntegrityError(
                f"the pieces of tensor `{name}` do not fit together",
                path=self.path,
                tensor=name,
                found=", ".join(f"{entry.dtype} {list(entry.shape)}" for entry in entries[:10]),
            )
        placed = [self._placed(piece, shape) for piece in pieces]
        lazy = assemble(
            name, dtype, shape, placed, path=self.path, framework=options.framework, device=options.device
        )
        joined = lazy.reader.joined if isinstance(lazy.reader, AssembledReader) else None
        return lazy if joined is None else LazyTensor(name, lazy.entry, joined)

    def _placed(self, piece: Piece, shape: tuple[int, ...]) -> PlacedPiece:
        file = self._index.weight_map[piece.name]
        lazy = self._shards[file].stored(piece.name)
        reader = self._numpy_readers.get(file)
        if reader is None:
            reader = self._numpy_readers[file] = lazy.reader.with_framework("numpy")
        return PlacedPiece.of(piece.region_in(shape), file, LazyTensor(piece.name, lazy.entry, reader, lazy.digest))

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
        """The parsed index."""
        return self._index

    @property
    def index_metadata(self) -> Mapping[str, Any]:
        """What the index says beside the names."""
        return self._index.metadata

    @property
    def base(self) -> Checkpoint[ArrayT]:
        """Itself."""
        return self

    @property
    def patch_files(self) -> tuple[str, ...]:
        """None: tensors are stored whole."""
        return ()

    def is_replaced(self) -> bool:
        """Whether another index is there by now."""
        return read_index(self.path) != self._stored_index

    @property
    def format_name(self) -> str:
        """The kind of these files, for people."""
        return next((shard.format_name for shard in self._shards.values()), super().format_name)

    @property
    def encryption(self) -> Encryption | None:
        """How the files are encrypted; None if they are not, or there is no key for them."""
        return next((shard.encryption for shard in self._shards.values()), None)

    @property
    def shards(self) -> dict[str, TensorFile]:
        """File name to open shard, as a new dict."""
        return dict(self._shards)

    @property
    def sources(self) -> Mapping[str, ByteSource]:
        """File name of each shard to its bytes."""
        return {name: shard.source for name, shard in self._shards.items()}

    @property
    def state_files(self) -> Iterable[str]:
        """Empty: every save replaces the index, which is watched anyway."""
        return ()

    @property
    def metadata(self) -> dict[str, str]:
        """Free text by key, as a new dict: that of the first shard, since a save writes the same to all."""
        metadata = next((shard.metadata for shard in self._shards.values()), {})
        return {
            key: text for key, text in metadata.items() if key not in self.aliases or self.aliases[key].of != text
        }

    @property
    def has_metadata(self) -> bool:
        """Whether the first shard has metadata, even if empty."""
        return any(shard.has_metadata for shard in list(self._shards.values())[:1])

    def shard_of(self, name: str) -> str:
        """Return the name of the shard that holds a tensor, or the first piece of a split tensor.

        Args:
            name: The tensor.

        Raises:
            TensorNotFoundError: If no tensor has that name.
        """
        self[name]
        name = self.aliases[name].of if name in self.aliases else name
        return self._file_of[name]

    @property
    def state_text(self) -> str | None:
        """The description of the saved state, as text; None if there is none."""
        return self._index.state

    def stored(self, name: str) -> LazyTensor:
        """Return a tensor that the files store under this name, such as a storage that only views use."""
        return self._joined[name] if name in self._joined else self._shards[self._file_of[name]].stored(name)

    def stored_names(self) -> Collection[str]:
        """Return the names of all tensors that are stored; split ones have one."""
        return self._file_of.keys()

    def _find(self, name: str) -> LazyTensor | None:
        return self.stored(name) if name in self._file_of else self._find_alias(name)

    @cached_property
    def _names(self) -> Collection[str]:
        stored = list(chain.from_iterable(shard.entries for shard in self._shards.values()))
        splits = self._index.splits
        if splits:  # a split tensor is where its first piece is
            first = {pieces[0]: name for name, pieces in splits.items()}
            stored = [first.get(name, name) for name in stored if name in first or name in self._file_of]
        return names_of(stored, self._sharing)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._file_of or name in self.aliases

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return the digest checks of some tensors, or of all tensors together with the SHA-256 of shards."""
        return digest_checks(self._shards, self._index, self.aliases, names, self.path)

    def describe(self) -> Description:
        """Return the contents of the index and all headers."""
        files = tuple(file for shard in self._shards.values() for file in shard.describe().files)
        pieces = {piece for names in self._index.splits.values() for piece in names}
        stored = {name: entry for file in files for name, entry in file.entries.items() if name not in pieces}
        stored |= {name: self.stored(name).entry for name in self._index.splits}
        return Description(files, os.path.basename(self.path), self._index.splits, self._index.state, stored)

    def close(self) -> None:
        """Close all files. Tensors that were read stay valid; lazy ones can no longer be read."""
        for shard in self._shards.values():
            shard.close()

    def __repr__(self) -> str:
        extent = f"{counted(len(self), 'tensor')} in {counted(len(self._shards), 'shard')}"
        return f"Checkpoint({self.path!r}, {extent}, {self.nbytes:,} bytes)"


def open_safetensors(path: str, options: OpenOptions) -> Checkpoint | TensorFile:
    """Open an index and its shards, or the single file that is there instead."""
    reading = read_consistently(path, options)
    if reading.location is None or reading.examination is None:
        return next(iter(reading.files.values()))
    refuse(reading.findings, path)
    _warn(reading.findings, path)
    return Checkpoint(reading.location, reading.examination, options)


def as_saved_directory(opened: Opened) -> SavedDirectory | None:
    """Return what is open if one file of it names all others, else None."""
    return opened if isinstance(opened, SavedDirectory) else None


def _warn(findings: list[Finding], path: str) -> None:
    strays = [finding.shard for finding in findings if not finding.is_damage]
    if strays:
        warnings.warn(
            f"{path}: shards that the index does not list: {', '.join(strays[:5])}", StrayShardWarning, stacklevel=4
        )
