"""A file of tensors as a read-only mapping of name to lazy tensor."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from tensorkeep.arrays import device_for
from tensorkeep.collector import PausedCollector
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import FormatError, TransportError, UnsupportedError
from tensorkeep.formats import Description
from tensorkeep.formats.safetensors import (
    STATE_KEY,
    Alias,
    Header,
    Seal,
    State,
    describe_file,
    free_text,
    parse_state,
    read_header,
    read_seal,
)
from tensorkeep.kinds._checks import Checks
from tensorkeep.kinds._options import OpenOptions
from tensorkeep.kinds.safetensors._aliases import names_of, sharing_of
from tensorkeep.kinds.safetensors._digests import digest_checks
from tensorkeep.kinds.safetensors._saved import SavedTensors
from tensorkeep.phrases import counted
from tensorkeep.tensors import LazyTensor, TensorReader
from tensorkeep.transport import Backend, ByteRange, ByteSource, Openable, VerifyingSource, open_source

_USUAL: Final = OpenOptions()


class TensorFile(SavedTensors):
    """Name to `LazyTensor`, in the order of the bytes in the file. Nothing but the header has been read.

    Closing is not needed for correctness: the file is let go of with the last reference. Usable from several
    threads, after a fork, and pickled (the path travels; the file must then be the same one).
    """

    def __init__(self, header: Header, reader: TensorReader, seal: Seal | None = None) -> None:
        self._header = header
        self._reader = reader
        self._seal = seal
        self._closed = False

    @cached_property
    def _digests(self) -> Mapping[str, bytes]:
        """Name to digest, decoded when the first one is asked for."""
        if self._seal is None:
            return {}
        return dict(zip(self._header.entries, self._seal.tensor_digests(), strict=True))

    @property
    def seal(self) -> Seal | None:
        """The digests that the header carries, as text; None where it has none, or they were not asked for."""
        return self._seal

    @property
    def source(self) -> ByteSource:
        """Where the bytes are."""
        return self._reader.source

    @property
    def sources(self) -> Mapping[str, ByteSource]:
        """The name of the file to its bytes."""
        return {os.path.basename(self.path): self.source}

    @property
    def whole_source(self) -> ByteSource:
        """Where whole tensors are read from: the same bytes, held against digests if the file is `verifying`."""
        return self._reader.whole_source

    @property
    def path(self) -> str:
        """The path, or what stands for it in messages."""
        return self._reader.source.name

    @property
    def metadata(self) -> dict[str, str]:
        """The file's free text by key, without what is said of itself; a new dict, empty where the file has none."""
        return dict(free_text(self._header.metadata, self._sharing) or {})

    @property
    def state_text(self) -> str | None:
        """What the header says of the state that was saved, as text; None where it says nothing."""
        return (self._header.metadata or {}).get(STATE_KEY)

    @cached_property
    def state(self) -> State | None:
        """What the header says of the state that was saved; see `SavedTensors.state`."""
        text = self.state_text
        try:
            return None if text is None else parse_state(text)
        except (FormatError, UnsupportedError) as error:
            raise error.with_fields(path=self.path) from None

    @cached_property
    def _sharing(self) -> State | None:
        """What the header says of tensors that share memory; None where it says nothing that can be used."""
        return sharing_of(self.state_text, self.entries, self.path)

    @property
    def aliases(self) -> Mapping[str, Alias]:
        """Name to what it is a view of, of tensors that share memory with others."""
        return self._sharing.aliases if self._sharing else {}

    def stored(self, name: str) -> LazyTensor:
        """Return a tensor as the file holds it; see `SavedTensors.stored`."""
        return LazyTensor(name, self._header.entries[name], self._open_reader(), self._digests.get(name))

    @property
    def has_metadata(self) -> bool:
        """Whether the file has free text at all, be it empty."""
        return self._header.metadata is not None

    @property
    def entries(self) -> Mapping[str, TensorEntry]:
        """Name to what the header says, in the order of the bytes in the file."""
        return self._header.entries

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return self._header.data_nbytes

    @property
    def n_elements(self) -> int:
        """Elements of all tensors."""
        return sum(entry.n_elements for entry in self._header.entries.values())

    @property
    def data_start(self) -> int:
        """Byte of the file at which the tensors' data begins."""
        return self._header.data_start

    @property
    def shards(self) -> dict[str, TensorFile]:
        """Name of the file to the file itself, as for a checkpoint of several; a new dict."""
        return {os.path.basename(self.path): self}

    def shard_of(self, name: str) -> str:
        """Return the name of the file, as for a checkpoint of several.

        Args:
            name: One of its tensors.

        Raises:
            TensorNotFoundError: If there is none of that name.
        """
        self[name]
        return os.path.basename(self.path)

    def span_of(self, name: str) -> ByteRange:
        """Return where a tensor's bytes stand in the file.

        Args:
            name: One of `entries`.
        """
        return self._reader.span_of(self._header.entries[name])

    def verifying(self) -> TensorFile:
        """Return the same file, each tensor of which is held against its digest whenever it is read whole.

        Raises:
            UnsupportedError: If it has no digests.
            TransportError: If the file is closed.
        """
        if self._seal is None:
            raise UnsupportedError(
                "the file has no digests to be held against",
                path=self.path,
                hint=f"`tensorkeep reshard {self.path} DIRECTORY` writes a copy that has",
            )
        spans = {name: self.span_of(name) for name in self.entries}
        source = VerifyingSource(self.source, spans, self._digests)
        return TensorFile(self._header, self._open_reader().checking(source), self._seal)

    def verified(self) -> TensorFile:
        """Return the same file, checked when it is read, if it has digests."""
        return self if self._seal is None else self.verifying()

    def _find(self, name: str) -> LazyTensor | None:
        entry = self._header.entries.get(name)
        if entry is None:
            return self._find_alias(name)
        return LazyTensor(name, entry, self._open_reader(), self._digests.get(name))

    @cached_property
    def _names(self) -> Collection[str]:
        return names_of(self._header.entries, self._sharing)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._header.entries or name in self.aliases

    def load(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Read whole tensors, in the order of the bytes in the file; see `LazyTensors.load`."""
        if names is None and self._sharing is None:  # without a lazy tensor for each
            return self._open_reader().load(self._header.entries, are_apart=True)
        return super().load(names)

    def _load_whole(self, framework: str, device: Any) -> dict[str, Any]:
        """Read all tensors, without a lazy tensor for each."""
        reader = self._open_reader().with_framework(framework, device_for(framework, device))
        return reader.load(self._header.entries, are_apart=True)

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return the digests of some tensors, or of all."""
        return digest_checks({os.path.basename(self.path): self}, None, self.aliases, names, self.path)

    def describe(self) -> Description:
        """Return what the header declares, even if it does not match its digests."""
        return describe_file(self.source, self._header)

    def _open_reader(self) -> TensorReader:
        self.check_open()
        return self._reader

    def check_open(self) -> None:
        """Refuse to go on with a file that was closed.

        Raises:
            TransportError: If it was.
        """
        if self._closed:
            raise TransportError("File is closed", path=self.path)

    def close(self) -> None:
        """Let go of the file; tensors that were read stay valid, lazy ones can no longer be read."""
        self._closed = True
        self._reader.close()

    def __repr__(self) -> str:
        return f"TensorFile({self.path!r}, {counted(len(self), 'tensor')}, {self.nbytes:,} bytes)"


def open_file(target: Openable, options: OpenOptions = _USUAL) -> TensorFile:
    """Open a safetensors file: a read-only mapping of name to `LazyTensor`.

    Only the header is read, and all of it is checked, also against its own digest where it has one.
    """
    return file_over(open_source(target, backend=options.backend), options)


def file_over(source: ByteSource, options: OpenOptions = _USUAL) -> TensorFile:
    """Open a safetensors file that stands anywhere."""
    with PausedCollector():
        header = read_header(source, max_header_nbytes=options.max_header_nbytes)
        seal = read_seal(source, header) if options.check else None
    file = TensorFile(header, TensorReader(source, header.data_start, options.framework, options.device), seal)
    return file.verifying() if options.verify else file


def load(
    target: Openable, *, framework: str = "numpy", device: Any = "cpu", backend: Backend = "auto"
) -> dict[str, Any]:
    """Read all tensors of one file, as every reader of the format does: its digests are not looked at."""
    options = OpenOptions(framework=framework, device=device, backend=backend, check=False)
    with open_file(target, options) as file:
        return file.load_shared(framework=framework, device=device)
