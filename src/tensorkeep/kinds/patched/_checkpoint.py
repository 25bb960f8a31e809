"""A checkpoint seen through patches, with the state that was saved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import cached_property
from typing import Any, Final

import msgspec

from tensorkeep.arrays import ArrayT
from tensorkeep.deltas import DOCUMENT_NAME, PatchedDocument, parse_document, patched
from tensorkeep.deltas.reading import Change, Patch
from tensorkeep.encryption import refuse_plain
from tensorkeep.errors import FormatError, LimitError, TensorkeepError
from tensorkeep.formats import Description
from tensorkeep.kinds.base import Checks, OpenOptions, names_to_check
from tensorkeep.kinds.safetensors import (
    Checkpoint,
    SavedDirectory,
    TensorFile,
    as_saved_directory,
    file_over,
    names_of,
    open_safetensors,
)
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.tensors import LazyTensor, TensorView
from tensorkeep.texts import counted
from tensorkeep.transport import ByteRange, ByteSource, join, open_source

_ATTEMPTS: Final = 50
"""How often to open a checkpoint that saves keep replacing."""


class PatchedCheckpoint(SavedDirectory[ArrayT]):
    """An open checkpoint that is kept as another one and patches: a mapping of name to `LazyTensor`.

    The headers and digests of all files have been read: they lead from the other checkpoint to this one. Tensors are
    patched when they are read. Those that changed are compared with their digests when they are read whole.
    """

    def __init__(
        self, directory: str, document: PatchedDocument, base: Checkpoint, files: Mapping[str, TensorFile]
    ) -> None:
        self._directory = directory
        self._document = document
        self._base = base
        self._files = files
        stored = {name: base.stored(name) for name in base.index.file_of_whole()}
        patches = {name: Patch.of(file, file.path) for name, file in files.items()}
        self._stored = patched(TensorView(stored, path=base.path, metadata={}), list(patches.values()))
        self._changed_by = {name: patch.description.tensors for name, patch in patches.items()}
        self._last_change = {tensor: name for name, changed in self._changed_by.items() for tensor in changed}
        reached = [patch.description.new.digest for patch in patches.values()]
        if reached and reached[-1] != document.digest:
            raise FormatError(
                "the patches lead to another checkpoint than the file says that names them",
                path=self.path,
                expected=f"{document.digest[:16]}…",
                found=f"{reached[-1][:16]}…",
            )

    @property
    def path(self) -> str:
        """Path of the file that names the others."""
        return join(self._directory, DOCUMENT_NAME)

    @property
    def directory(self) -> str:
        """The directory of the files."""
        return self._directory

    @property
    def index_metadata(self) -> Mapping[str, Any]:
        """What the file that names the others says beside that."""
        return self._document.index

    @property
    def patch_files(self) -> tuple[str, ...]:
        """Paths of the patches, in their order."""
        return tuple(file.path for file in self._files.values())

    def is_replaced(self) -> bool:
        """Whether the files are others by now."""
        return read_document(self._directory) != self._document

    @property
    def base(self) -> Checkpoint:
        """The checkpoint that the first patch is for."""
        return self._base

    @property
    def format_name(self) -> str:
        """The kind of these files, for people."""
        return "safetensors, patched"

    @property
    def sources(self) -> Mapping[str, ByteSource]:
        """Path of each file below the directory to its bytes."""
        of_base = {self._in_base(file): source for file, source in self._base.sources.items()}
        return of_base | {name: file.source for name, file in self._files.items()}

    @property
    def state_files(self) -> Iterable[str]:
        """None: the file that names the others is replaced by every save."""
        return ()

    @property
    def is_replaceable(self) -> bool:
        """False: a save writes whole tensors, which belong elsewhere."""
        return False

    @property
    def metadata(self) -> dict[str, str]:
        """Free text by key, as a new dict."""
        return dict(self._document.metadata or {})

    @property
    def has_metadata(self) -> bool:
        """Whether there is metadata, even if empty."""
        return self._document.metadata is not None

    @property
    def state_text(self) -> str | None:
        """The description of the saved state, as text; None if there is none."""
        return self._document.state

    def stored(self, name: str) -> LazyTensor:
        """Return a tensor that is stored under this name, patched."""
        return self._stored[name]

    def stored_names(self) -> Collection[str]:
        """Return the names of all tensors that are stored."""
        return self._stored.keys()

    def shard_of(self, name: str) -> str:
        """Return the path of the last file that says what a tensor is, below the directory."""
        self[name]
        owner = self.aliases[name].of if name in self.aliases else name
        return self._last_change.get(owner) or self._in_base(self._base.shard_of(owner))

    def _in_base(self, file: str) -> str:
        return f"{self._document.base}/{file}"

    def _find(self, name: str) -> LazyTensor | None:
        return self._stored[name] if name in self._stored else self._find_alias(name)

    @cached_property
    def _names(self) -> Collection[str]:
        return names_of(list(self._stored), self._sharing)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._stored or name in self.aliases

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return the digest checks of all files, or of what some tensors are made of."""
        chosen = None if names is None else names_to_check(names, self, self.path)
        owners = {self.aliases[name].of if name in self.aliases else name for name in chosen or self}
        in_base = [name for name in self._base if name in owners]
        of_base = self._base.checks(None if chosen is None else in_base) if chosen is None or in_base else Checks()
        replace = msgspec.structs.replace
        checks = [replace(check, file=self._in_base(check.file)) for check in of_base.checks]
        findings = [replace(each, shard=self._in_base(each.shard)) for each in of_base.findings]
        for name, file in self._files.items():
            parts = None if chosen is None else _parts_of(self._changed_by[name], owners)
            found = file.checks(parts) if parts is None or parts else Checks()
            checks += [replace(check, file=name, n_tensors=0) for check in found.checks]
            findings += [replace(finding, shard=name) for finding in found.findings]
        return replace(
            of_base, checks=checks, findings=findings, n_files=len(self.sources), n_tensors=len(self._stored)
        )

    def describe(self) -> Description:
        """Return what is in each file; the first one has the metadata, as in a checkpoint with an index."""
        described = super().describe()
        first, *others = described.files
        first = msgspec.structs.replace(first, metadata=self._document.metadata)
        entries = (entry for file in described.files for entry in file.entries.items())
        stored = {name: entry for name, entry in entries if name in self._stored}
        return msgspec.structs.replace(described, files=(first, *others), state=self._document.state, stored=stored)

    def close(self) -> None:
        """Close all files. Tensors that were read stay valid; lazy ones can no longer be read."""
        self._base.close()
        for file in self._files.values():
            file.close()

    def __repr__(self) -> str:
        extent = f"{counted(len(self), 'tensor')} through {len(self._files)} patches"
        return f"PatchedCheckpoint({self.path!r}, {extent}, {self.nbytes:,} bytes)"


def open_patched(directory: str, options: OpenOptions) -> PatchedCheckpoint:
    """Open a checkpoint that is kept as another one and patches; again if a save replaced it meanwhile."""
    refuse_plain(options.keys, directory)
    attempt = 0
    while True:
        attempt += 1
        document = read_document(directory)
        try:
            return _opened(directory, document, msgspec.structs.replace(options, variant=None))
        except TensorkeepError:
            if attempt == _ATTEMPTS or read_document(directory) == document:
                raise


def _opened(directory: str, document: PatchedDocument, options: OpenOptions) -> PatchedCheckpoint:
    """Open the files that a document names."""
    with ExitStack() as stack:
        base = stack.enter_context(open_safetensors(join(directory, document.base), options))
        whole = as_saved_directory(base)
        if whole is None:
            raise FormatError("the checkpoint that is patched has no index", path=base.path)
        files = {name: stack.enter_context(_open_file(join(directory, name), options)) for name in document.patches}
        patched_checkpoint = PatchedCheckpoint(directory, document, whole.base, files)
        stack.pop_all()
        return patched_checkpoint


def read_document(directory: str) -> PatchedDocument:
    """Read the file that names the others."""
    path = join(directory, DOCUMENT_NAME)
    source = open_source(path)
    try:
        if source.nbytes > MAX_HEADER_NBYTES:
            raise LimitError(
                "the file is too long",
                path=path,
                expected=f"at most {MAX_HEADER_NBYTES:,} bytes",
                found=f"{source.nbytes:,}",
            )
        return parse_document(bytes(source.read(ByteRange(0, source.nbytes))), path)
    finally:
        source.close()


def _open_file(path: str, options: OpenOptions) -> TensorFile:
    source = open_source(path, backend=options.backend)
    try:
        return file_over(source, options)
    except BaseException:
        source.close()
        raise


def _parts_of(changed: Mapping[str, Change], owners: Collection[str]) -> list[str]:
    """Return which tensors of a patch say how some tensors change."""
    parts = {change.delta or change.new_whole for name, change in changed.items() if name in owners}
    return [part for part in parts if part is not None]
