"""A safetensors file as a read-only mapping of name to lazy tensor."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, Final

from msgspec.structs import replace

from tensorkeep.arrays import ArrayT, device_for
from tensorkeep.collector import PausedCollector
from tensorkeep.digests import digest_of
from tensorkeep.encryption import Encryption, Keys, is_encrypted, listed, plain_file, refuse_plain
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import TransportError, UnsupportedError
from tensorkeep.formats import Description
from tensorkeep.formats.safetensors import (
    STATE_KEY,
    Header,
    Seal,
    describe_file,
    free_text,
    read_head,
    read_seal,
)
from tensorkeep.kinds.base import Checks, LoadOptions, OpenOptions, by_environment
from tensorkeep.kinds.safetensors._aliases import names_of
from tensorkeep.kinds.safetensors._blocks import BlocksFile
from tensorkeep.kinds.safetensors._digests import digest_checks
from tensorkeep.kinds.safetensors._saved import SavedTensors
from tensorkeep.parallel import Progress
from tensorkeep.tensors import EngineReader, LazyTensor, TensorReader
from tensorkeep.texts import counted
from tensorkeep.transport import (
    Backend,
    BlockProof,
    ByteRange,
    ByteSource,
    DigestedRanges,
    Openable,
    VerifyingSource,
    open_source,
    split,
)

_USUAL: Final = OpenOptions()


class TensorFile(SavedTensors[ArrayT]):
    """An open safetensors file: a mapping of name to `LazyTensor`, in byte order. Only the header has been read.

    Closing it is optional: the file is closed with the last reference. It may be used from several threads and after
    a fork. It can be pickled: only the path is, and unpickling needs the same, unchanged file.
    """

    def __init__(
        self,
        header: Header,
        reader: TensorReader,
        seal: Seal | None = None,
        head_digest: bytes | None = None,
        blocks: BlocksFile | None = None,
        stored: TensorFile | None = None,
        encryption: Encryption | None = None,
    ) -> None:
        self._stored = stored
        self._encryption = encryption
        self._header = header
        self._blocks = blocks
        self._head_digest = head_digest
        self._reader = reader
        self._seal = seal
        self._closed = False

    @property
    def format_name(self) -> str:
        """The kind of the file, for people."""
        return "safetensors, encrypted" if self.is_encrypted else "safetensors"

    @cached_property
    def _digests(self) -> Mapping[str, bytes]:
        """Name to digest, decoded when the first one is asked for."""
        if self._seal is None:
            return {}
        return dict(zip(self._header.entries, self._seal.tensor_digests(), strict=True))

    @property
    def seal(self) -> Seal | None:
        """The digests in the header, as text; None if it has none, or the file was opened with `check=False`."""
        return self._seal

    @property
    def blocks(self) -> BlocksFile | None:
        """The file with the digests of its blocks; None if the index has none, or the file was opened without it."""
        return self._blocks

    def header_digest(self) -> str:
        """Return the BLAKE3 of everything before the data in the file, as 64 hexadecimal digits."""
        return (self._head_digest or digest_of(self.source.read(ByteRange(0, self.data_start)))).hex()

    @property
    def source(self) -> ByteSource:
        """The source of the file's bytes, unchecked."""
        return self._reader.unchecked

    @property
    def is_encrypted(self) -> bool:
        """Whether the file is encrypted."""
        return self._stored is not None

    @property
    def encryption(self) -> Encryption | None:
        """How the file is encrypted; None if it is not, or there is no key for it."""
        return self._encryption

    @property
    def stored_source(self) -> ByteSource:
        """The source of the bytes as they are in the file, encrypted or not."""
        return self.source if self._stored is None else self._stored.source

    def block_checks(self) -> Checks:
        """Return the check of the file with the digests of the blocks of the data, encrypted or not."""
        if self._stored is not None:
            return self._stored.block_checks()
        return Checks() if self._blocks is None else self._blocks.checks(self.nbytes)

    @property
    def sources(self) -> Mapping[str, ByteSource]:
        """The name of the file to its bytes."""
        return {os.path.basename(self.path): self.source}

    @property
    def path(self) -> str:
        """The path, or a description of the source."""
        return self._reader.source.name

    @property
    def metadata(self) -> dict[str, str]:
        """Free text by key, without tensorkeep's own entries, as a new dict."""
        return dict(free_text(self._header.metadata, self._sharing) or {})

    @property
    def state_text(self) -> str | None:
        """The header's description of the saved state, as text; None if there is none."""
        return (self._header.metadata or {}).get(STATE_KEY)

    def stored_names(self) -> Collection[str]:
        """Return the names of all tensors that are stored."""
        return self._header.entries.keys()

    def stored(self, name: str) -> LazyTensor:
        """Return a tensor that the file stores under this name, such as a storage that only views use."""
        return LazyTensor(name, self._header.entries[name], self._open_reader(), self._digests.get(name))

    @property
    def has_metadata(self) -> bool:
        """Whether the file has metadata, even if empty."""
        return self._header.metadata is not None

    @property
    def entries(self) -> Mapping[str, TensorEntry]:
        """Name to the header's entry for each stored tensor, in byte order."""
        return self._header.entries

    @property
    def nbytes(self) -> int:
        """Size of all tensors in the file, in bytes."""
        return self._header.data_nbytes

    @property
    def n_elements(self) -> int:
        """Number of elements of all tensors in the file."""
        return sum(entry.n_elements for entry in self._header.entries.values())

    @property
    def data_start(self) -> int:
        """Offset in the file, in bytes, at which the tensors' data begin."""
        return self._header.data_start

    @property
    def shards(self) -> dict[str, TensorFile]:
        """Name of the file to the file itself, as a new dict: the same interface as `Checkpoint.shards`."""
        return {os.path.basename(self.path): self}

    def shard_of(self, name: str) -> str:
        """Return the name of the file: the same interface as `Checkpoint.shard_of`.

        Args:
            name: One of its tensors.

        Raises:
            TensorNotFoundError: If no tensor has that name.
        """
        self[name]
        return os.path.basename(self.path)

    def span_of(self, name: str) -> ByteRange:
        """Return a tensor's half-open byte range in the file.

        Args:
            name: One of `entries`.

        Raises:
            KeyError: If it is not one of `entries`.
        """
        return self._reader.span_of(self._header.entries[name])

    def verifying(self, *, private: bool = False) -> TensorFile:
        """Return the same file, but compare what is read with its digest.

        Args:
            private: Whether to read into memory that no other program can change, rather than map the file.

        Raises:
            UnsupportedError: If the file has no digests.
            TransportError: If the file is closed.
        """
        if self._seal is None:
            raise UnsupportedError(
                "the file has no digests to verify it with",
                path=self.path,
                hint=f"`tensorkeep reshard {self.path} DIRECTORY` writes a copy with digests",
            )
        ranges = partial(_digested_ranges, self._header, self._seal)
        source = VerifyingSource(self.source, ranges, self._block_proof(self._seal), private=private)
        reader = self._open_reader().checking(source)
        file = TensorFile(self._header, reader, self._seal, self._head_digest, self._blocks)
        file._stored, file._encryption = self._stored, self._encryption
        file.proof = self.proof
        return file

    def _block_proof(self, seal: Seal) -> BlockProof | None:
        """Return the block digests, which are read when they are needed."""
        if self._blocks is None or not self._header.data_nbytes:
            return None
        return self._blocks.proof(self.data_start, self.nbytes, seal)

    def verified(self) -> TensorFile:
        """Return the same file, `verifying` if it has digests and is not encrypted, which authenticates all reads."""
        return self if self._seal is None or self.is_encrypted else self.verifying()

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

    def load(self, names: Iterable[str] | None = None, *, progress: Progress | None = None) -> dict[str, ArrayT]:
        """Read whole tensors, in byte order; see `LazyTensors.load`."""
        if names is None and self._sharing is None and progress is None:  # the fastest: no lazy tensors are made
            return self._open_reader().load(self._header.entries, are_apart=True)
        return super().load(names, progress=progress)

    def _load_whole(self, framework: str, options: LoadOptions) -> dict[str, Any]:
        """Read all tensors, without making a lazy tensor for each if nobody listens to the progress."""
        if options.progress is not None:
            return super()._load_whole(framework, options)
        reader = self._open_reader().with_framework(framework, device_for(framework, options.device))
        return reader.load(self._header.entries, are_apart=True)

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return the digest checks of some tensors or all."""
        return digest_checks({os.path.basename(self.path): self}, None, self.aliases, names, self.path)

    def describe(self) -> Description:
        """Return the contents of the header, even if it does not match its digest."""
        described = describe_file(self.source, self._header)
        if not self.is_encrypted:
            return described
        files = tuple(replace(file, form=self.format_name) for file in described.files)
        return replace(described, files=files)

    def _open_reader(self) -> TensorReader:
        self.check_open()
        return self._reader

    def check_open(self) -> None:
        """Check that the file is still open.

        Raises:
            TransportError: If it is closed.
        """
        if self._closed:
            raise TransportError("File is closed", path=self.path)

    def close(self) -> None:
        """Close the file. Tensors that were read stay valid; lazy ones can no longer be read."""
        self._closed = True
        self._reader.close()
        self.stored_source.close()

    def __repr__(self) -> str:
        return f"TensorFile({self.path!r}, {counted(len(self), 'tensor')}, {self.nbytes:,} bytes)"


def _digested_ranges(header: Header, seal: Seal) -> DigestedRanges:
    offsets = [entry.data_offsets for entry in header.entries.values()]
    starts = [header.data_start + start for start, _ in offsets]
    stops = [header.data_start + stop for _, stop in offsets]
    return DigestedRanges(list(header.entries), starts, stops, b64decode(seal.tensors))


def open_file(target: Openable, options: OpenOptions = _USUAL) -> TensorFile:
    """Open a safetensors file. Only the header is read, and checked, also against its digest if it has one."""
    return file_over(open_source(target, backend=options.backend), options)


def file_over(
    source: ByteSource,
    options: OpenOptions = _USUAL,
    *,
    name: str | None = None,
    is_recorded: bool = False,
    blocks: BlocksFile | None = None,
) -> TensorFile:
    """Open a safetensors file in any source; `is_recorded` if the digest of its header will be compared."""
    with PausedCollector():
        head, header = read_head(source, max_header_nbytes=options.max_header_nbytes)
        seal = read_seal(source, header, head) if options.check else None
    encrypts = is_encrypted(header.metadata)
    digest = digest_of(head) if is_recorded or encrypts or options.proof is not None else None
    if options.proof is not None and digest is not None:
        known = name or split(source.name)[1]
        options.proof.check_tensors(known, source, digest, is_sealed=seal is not None, is_recorded=is_recorded)
    reader = TensorReader(source, header.data_start, options.framework, options.device)
    if options.engine is not None:
        reader = EngineReader(source, header.data_start, options.framework, options.device, options.engine)
    file = TensorFile(header, reader, seal, digest, blocks)
    if not options.as_stored:
        if encrypts:
            return _decrypted(file, options)
        refuse_plain(options.keys, source.name)
    is_proven_whole = options.proof is not None and seal is None and not options.verify
    if not options.checks_reads or is_proven_whole:
        return file
    return file.verifying(private=options.proof is not None)


def _decrypted(stored: TensorFile, options: OpenOptions) -> TensorFile:
    """Open the plain file in an encrypted one; without its key, only a list of what is shown of it.

    Every block that is read is authenticated by the key. A signature proves the encrypted bytes, so these are then
    compared with their digests too.
    """
    source = stored.source if options.proof is None else stored.verifying()._reader.source
    opened = plain_file(source, stored._header, options.keys or Keys.of_environment())
    encryption = None
    if opened is None:
        shown, locked = listed(stored.source, stored._header)
        reader, seal = TensorReader(locked, shown.data_start, options.framework, options.device), None
    else:
        plain, encryption = opened
        inner = file_over(plain, replace(options, as_stored=True, check=True, verify=False, proof=None))
        shown, reader, seal = inner._header, inner._reader, inner._seal
    return TensorFile(shown, reader, seal, stored._head_digest, stored=stored, encryption=encryption)


def load(
    target: Openable, *, framework: str = "numpy", device: Any = "cpu", backend: Backend = "auto"
) -> dict[str, Any]:
    """Read all tensors of one file like any reader of the format, without looking at its digests."""
    options = OpenOptions(framework=framework, device=device, backend=backend, check=False)
    with open_file(target, by_environment(options, target)) as file:
        return file.load_shared(framework=framework, device=device)
