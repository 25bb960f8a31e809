"""The files of a checkpoint that are published, and what they must be."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from typing import Final, Literal

import msgspec

from tensorkeep.checkpoint import FileNames, verify
from tensorkeep.deltas import DOCUMENT_NAME
from tensorkeep.errors import (
    IntegrityError,
    SourceChangedError,
    SourceMissingError,
    UnsupportedError,
    as_transport_error,
)
from tensorkeep.fetching import MAX_COMPANION_NBYTES, companions_among
from tensorkeep.kinds import Place
from tensorkeep.kinds.folder import has_manifest, read_manifest
from tensorkeep.kinds.registry import find_kind
from tensorkeep.kinds.safetensors import open_file, read_index
from tensorkeep.layout import MANIFEST, Index
from tensorkeep.publishing._local_files import LocalFile, look_at, refuse_unaware, status_of
from tensorkeep.publishing._signatures import covered_by
from tensorkeep.signing import is_provenance, is_signature, read_signature, signed_file_of
from tensorkeep.texts import listed

CARD: Final = "README.md"
"""The card of a repository, which people edit there."""


class Package(msgspec.Struct, frozen=True):
    """Everything that is published.

    Attributes:
        names: The names by which the checkpoint is found; None for a directory with a manifest.
        index_name: Name of the index, or None.
        index: What it says, or None.
        shards: Names of the files with tensors; for a directory with a manifest, of all that it lists.
        files: All files by name: paths below the directory, separated by `/`.
        is_checked: Whether their bytes are known to have the digests that are recorded.
    """

    names: FileNames | None
    index_name: str | None
    index: Index | None
    shards: tuple[str, ...]
    files: dict[str, LocalFile]
    is_checked: bool

    @property
    def is_signed(self) -> bool:
        """Whether a signature of these files, by their names, is among them."""
        return any(map(is_signature, self.files))

    @property
    def others(self) -> list[str]:
        """Names of all files but the index and those with tensors."""
        return [name for name in self.files if name not in self.shards and name != self.index_name]

    def refuse_unsigned(self, kept: Collection[str], url: str) -> None:
        """Refuse signatures of files that are not sent, since the repository keeps its own."""
        signed = covered_by(self.files, lambda name: read_signature(self.files[name].path)).intersection(kept)
        if signed:
            raise UnsupportedError(
                "a signature covers a file that the repository has a different version of, and keeps",
                path=url,
                found=", ".join(sorted(signed)),
                hint="Copy the repository's file into the directory, and sign again",
            )

    def refuse_beside(self, there: Collection[str], url: str) -> None:
        """Refuse a place where readers would still find a checkpoint with patches."""
        if self.names is not None and DOCUMENT_NAME in there and DOCUMENT_NAME not in self.files:
            raise UnsupportedError(
                "there is a checkpoint with patches, which readers would still find",
                path=url,
                found=DOCUMENT_NAME,
                hint="Push to another directory, or remove that file",
            )

    def refuse_changes(self) -> None:
        """Refuse files that changed since they were looked at."""
        for file in self.files.values():
            status = status_of(file.path)
            if (status.st_size, status.st_mtime_ns) != (file.nbytes, file.mtime_ns):
                raise SourceChangedError(
                    "the file changed during the push",
                    path=file.path,
                    hint="Nothing was published; push again",
                )


def package(
    source: str, *, variant: str | None, include: Collection[str], is_checked: bool, extras_of: str | None = None
) -> Package:
    """Look at a checkpoint and the files that go with it; `is_checked` if its bytes have their digests.

    The files that go with it are in another directory, `extras_of`, if the checkpoint was made for this push.
    """
    directory = source if os.path.isdir(source) else None
    if directory is not None and variant is None and has_manifest(directory):
        own_names = (*read_manifest(directory), MANIFEST)
        listed_files = look_at(directory, [*own_names, *_included(directory, include)])
        refuse_unaware(listed_files.values(), directory)
        return Package(None, None, None, own_names, listed_files, is_checked)
    found = find_kind(Place(source, variant=variant, trusts_names=False))
    files = found.files()
    if files is None:
        raise UnsupportedError("this cannot be pushed", path=source, found=found.kind.name)
    index = None if files.index is None else read_index(os.path.join(files.directory, files.index))
    shards = files.names if index is None else index.files
    own = look_at(files.directory, [*shards, *_sidecars(files.directory, index), *filter(None, [files.index])])
    if is_checked and index is not None and index.shards is not None:
        replace = msgspec.structs.replace
        own |= {name: replace(own[name], sha256=record.sha256) for name, record in index.shards.items()}
    if extras_of is not None:
        replaced = _own_paths(extras_of, variant)
        companions = [name for name in _companions(extras_of) if not is_provenance(name)]  # it is about other files
        extras = [name for name in (*companions, *_included(extras_of, include)) if name not in replaced]
    elif directory is not None:
        extras = [*_companions(directory), *_signed_in(directory), *_included(directory, include)]
    else:
        signatures = _signatures_in(files.directory) if index is None else []
        extras = [name for name in signatures if signed_file_of(name) in own]
    home = extras_of or files.directory
    others = look_at(home, [name for name in extras if name not in own])
    refuse_unaware(others.values(), home)
    is_index = files.is_index if files.entries else lambda _: False
    names = FileNames(files.entries or tuple(shards), is_index, files.suffixes)
    return Package(names, files.index, index, tuple(shards), others | own, is_checked)


def _own_paths(source: str, variant: str | None) -> dict[str, str]:
    """Return the files of a checkpoint, by name, without those that go with it."""
    files = find_kind(Place(source, variant=variant, trusts_names=False)).files()
    if files is None:
        return {}
    names = files.names
    if files.index is not None:
        index = read_index(os.path.join(files.directory, files.index))
        names = (*index.files, *index.sidecars, files.index)
    return {name: os.path.join(files.directory, *name.split("/")) for name in names}


def refuse_encrypted(source: str, variant: str | None) -> None:
    """Refuse to publish an encrypted checkpoint in other shards: these would be plain."""
    for name, path in _own_paths(source, variant).items():
        if not name.endswith(".safetensors"):
            continue
        with open_file(path) as file:
            if file.is_encrypted:
                raise UnsupportedError(
                    "the checkpoint is encrypted, but new shards would not be",
                    path=path,
                    hint="Use reshard(..., max_shard_size=..., key=..., encrypt=...), then push the result",
                )


def refuse_damage(source: str, variant: str | None, *, trust: Literal[False] | None = None) -> None:
    """Refuse what `verify` refuses: bytes that differ from the saved ones, or a lack of signatures for a policy."""
    damage = [finding for finding in verify(source, variant=variant, trust=trust).findings if finding.is_damage]
    if damage:
        raise IntegrityError(
            "the checkpoint does not pass verification, so it is not published",
            path=source,
            tensor=damage[0].tensor,
            found=listed(damage, separator="; "),
            hint=f"tensorkeep verify {source} lists everything",
        )


def _companions(directory: str) -> list[str]:
    with as_transport_error("could not read the directory", directory):
        names = sorted(os.listdir(directory))
    return [
        name
        for name in companions_among(names)
        if os.path.isfile(path := os.path.join(directory, name)) and os.path.getsize(path) <= MAX_COMPANION_NBYTES
    ]


def _sidecars(directory: str, index: Index | None) -> list[str]:
    """Return the files with block digests; one that is missing is no damage."""
    return [name for name in (index.sidecars if index else ()) if os.path.isfile(os.path.join(directory, name))]


def _signatures_in(directory: str) -> list[str]:
    with as_transport_error("could not read the directory", directory):
        return sorted(filter(is_signature, os.listdir(directory or os.curdir)))


def _signed_in(directory: str) -> list[str]:
    """Return the signatures in a directory, and everything that they cover."""
    signatures = _signatures_in(directory)
    return [*signatures, *sorted(covered_by(signatures, lambda name: read_signature(os.path.join(directory, name))))]


def _included(directory: str, patterns: Collection[str]) -> Iterator[str]:
    """Give the relative names of files that match a pattern; hidden files are never published."""
    unused = set(patterns)
    for folder, folders, names in os.walk(directory) if patterns else ():
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        inner = os.path.relpath(folder, directory)
        for name in sorted(names):
            relative = name if inner == os.curdir else os.path.join(inner, name).replace(os.sep, "/")
            matching = {pattern for pattern in patterns if fnmatchcase(relative, pattern)}
            unused -= matching
            if matching and not name.startswith("."):
                yield relative
    if unused:
        raise SourceMissingError("no file matches", path=directory, expected=listed(sorted(unused)))
