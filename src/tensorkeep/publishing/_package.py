"""The files of a checkpoint that are published, and what they must be."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from tensorkeep.checkpoint import FileNames, verify
from tensorkeep.errors import (
    IntegrityError,
    RefusedError,
    SourceChangedError,
    SourceMissingError,
    UnsupportedError,
    as_transport_error,
)
from tensorkeep.fetching import MAX_COMPANION_NBYTES, companions_among
from tensorkeep.kinds import Place
from tensorkeep.kinds.folder import has_manifest, read_manifest
from tensorkeep.kinds.registry import find_kind
from tensorkeep.kinds.safetensors import read_index
from tensorkeep.layout import MANIFEST, Index
from tensorkeep.paths import is_inside
from tensorkeep.publishing._signatures import covered_by
from tensorkeep.signing import is_signature, read_signature, signed_file_of
from tensorkeep.texts import listed

CARD: Final = "README.md"
"""The card of a repository, which people edit there."""


class LocalFile(msgspec.Struct, frozen=True):
    """A file that is published.

    Attributes:
        path: Where it is.
        nbytes: Its size.
        mtime_ns: When it was last changed.
        sha256: Its SHA-256, if the index records it and that was checked.
    """

    path: str
    nbytes: int
    mtime_ns: int
    sha256: str | None = None


class Package(msgspec.Struct, frozen=True):
    """Everything that is published.

    Attributes:
        names: The names by which the checkpoint is found; None for a directory with a manifest.
        index_name: Name of the index, or None.
        index: What it says, or None.
        shards: Names of the files with tensors; for a directory with a manifest, of all that it lists.
        files: All files by name: paths below the directory, separated by `/`.
    """

    names: FileNames | None
    index_name: str | None
    index: Index | None
    shards: tuple[str, ...]
    files: dict[str, LocalFile]

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
                "a signature covers a file of which the repository keeps its own",
                path=url,
                found=", ".join(sorted(signed)),
                hint="Put the one of the repository into the directory, and sign that",
            )

    def refuse_changes(self) -> None:
        """Refuse files that changed since they were looked at."""
        for file in self.files.values():
            status = _status(file.path)
            if (status.st_size, status.st_mtime_ns) != (file.nbytes, file.mtime_ns):
                raise SourceChangedError(
                    "the file changed during the push",
                    path=file.path,
                    hint="Nothing was published; push again",
                )


def package(
    source: str, *, variant: str | None, include: Collection[str], is_checked: bool, extras_of: str | None = None
) -> Package:
    """Look at a checkpoint and the files that go with it, which may be in another directory, `extras_of`."""
    if is_checked:
        _refuse_damage(source, variant)
    directory = source if os.path.isdir(source) else None
    if directory is not None and variant is None and has_manifest(directory):
        listed_names = tuple(read_manifest(directory))
        more = _included(directory, include)
        return Package(
            None, None, None, (*listed_names, MANIFEST), _looked_at(directory, [*listed_names, MANIFEST, *more])
        )
    found = find_kind(Place(source, variant=variant, trusts_names=False))
    files = found.files()
    if files is None:
        raise UnsupportedError(f"this is {found.kind.name}, which cannot be pushed", path=source)
    index = None if files.index is None else read_index(os.path.join(files.directory, files.index))
    shards = files.names if index is None else index.files
    own = _looked_at(files.directory, [*shards, *_sidecars(files.directory, index), *filter(None, [files.index])])
    records = (index.shards if index else None) or {}
    if is_checked:
        own = {
            name: msgspec.structs.replace(file, sha256=records[name].sha256) if name in records else file
            for name, file in own.items()
        }
    others = {}
    if extras_of is not None:
        others = _looked_at(extras_of, [*_companions(extras_of), *_included(extras_of, include)])
    elif directory is not None:
        signatures = _signatures_in(directory)
        signed = covered_by(signatures, lambda name: read_signature(os.path.join(directory, name)))
        extras = dict.fromkeys([
            *_companions(directory),
            *signatures,
            *sorted(signed),
            *_included(directory, include),
        ])
        others = _looked_at(directory, [name for name in extras if name not in own])
    elif index is None:
        beside = files.directory or os.curdir
        others = _looked_at(beside, [name for name in _signatures_in(beside) if signed_file_of(name) in own])
    names = FileNames(files.entries or shards, files.is_index, files.suffixes)
    return Package(names, files.index, index, tuple(shards), others | own)


def _refuse_damage(source: str, variant: str | None) -> None:
    damage = [finding for finding in verify(source, variant=variant).findings if finding.is_damage]
    if damage:
        raise IntegrityError(
            "the checkpoint is damaged, and is not published",
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
    """Return the files with digests of blocks; one that is missing is no damage."""
    return [name for name in (index.sidecars if index else ()) if os.path.isfile(os.path.join(directory, name))]


def _signatures_in(directory: str) -> list[str]:
    with as_transport_error("could not read the directory", directory):
        return sorted(filter(is_signature, os.listdir(directory)))


def _included(directory: str, patterns: Collection[str]) -> Iterator[str]:
    """Give the relative names of files that match a pattern; hidden ones are for nobody else."""
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


def _looked_at(directory: str, names: Iterable[str]) -> dict[str, LocalFile]:
    found = {}
    for name in dict.fromkeys(names):
        if not is_inside(name) or any(part.startswith(".") for part in name.split("/")):
            raise RefusedError("not a name for a file that others get", path=directory, found=repr(name))
        path = os.path.join(directory, *name.split("/"))
        status = _status(path)
        found[name] = LocalFile(path, status.st_size, status.st_mtime_ns)
    return found


def _status(path: str) -> os.stat_result:
    with as_transport_error("could not read the file", path):
        return os.stat(path)
