"""Checkpoints and tensors as plain values, so that another process or machine can open them again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tensorkeep.digests import digest_of
from tensorkeep.errors import SourceChangedError
from tensorkeep.kinds.base import Opened, OpenOptions, Place
from tensorkeep.kinds.registry import find_kind
from tensorkeep.tensors import LazyTensor, LazyTensors
from tensorkeep.transport import HandedOver, VerifyingSource, is_directory, is_remote, listing_cache

if TYPE_CHECKING:
    from tensorkeep.trust import Proof


class SourceToOpen(msgspec.Struct, frozen=True):
    """A checkpoint as another process opens it.

    Attributes:
        path: Its absolute path, or a URL with the options for reading it.
        variant: Which checkpoint of a directory.
        engine: The library that reads it.
        fingerprint: Differs if any of its files does; None if others cannot open these files alike.
        proof: What was signed of it; None if no policy demands a signature.
    """

    path: str
    variant: str | None
    engine: str | None
    fingerprint: str | None
    proof: Proof | None = None

    @classmethod
    def of(cls, opened: Opened, path: str, variant: str | None = None, engine: str | None = None) -> SourceToOpen:
        """Return the value for what is open at a path or a URL; only a directory has variants."""
        at = path if is_remote(path) else os.path.abspath(path)
        return cls(at, variant if is_directory(path) else None, engine, _fingerprint(opened), opened.proof)

    def opened(self) -> Opened:
        """Open it for NumPy; refuse other files, and what was not signed."""
        with listing_cache(self.path) as given:
            found = find_kind(Place(given, variant=self.variant))
            opened = found.open(OpenOptions(variant=self.variant, engine=self.engine, proof=self.proof))
        if self.fingerprint not in {None, _fingerprint(opened)}:
            opened.close()
            raise self._other_files()
        return opened

    def _other_files(self, tensor: str | None = None) -> SourceChangedError:
        return SourceChangedError(
            "a worker does not find the checkpoint that it was told to read",
            path=self.path,
            tensor=tensor,
            hint="All workers must see the same files; if they do, it was saved again meanwhile: start again",
        )

    def found_in(
        self, opened: Opened, name: str, dtype: str, shape: tuple[int, ...], digest: bytes | None
    ) -> LazyTensor:
        """Return a tensor; refuse another one in its place."""
        lazy: LazyTensor | None = opened.get(name)
        if lazy is None or (lazy.dtype, lazy.shape, lazy.digest) != (dtype, shape, digest):
            raise self._other_files(name)
        return lazy


def _fingerprint(opened: Opened) -> str | None:
    """Return what the names, sizes and times of all files imply; None for others than plain files and objects."""
    files = [(name, HandedOver.of(source)) for name, source in sorted(opened.sources.items())]
    if not all(handed for _, handed in files):
        return None
    known = [(name, handed.nbytes, handed.mtime_ns, _version_of(handed)) for name, handed in files if handed]
    return digest_of(msgspec.json.encode(known)).hex()


def _version_of(handed: HandedOver) -> str:
    """Return what a server calls the version of an object; a local file has a time."""
    return "" if handed.remote is None else str(handed.remote.opening.version)


def is_provable_by_others(opened: Opened, lazy: LazyTensor) -> bool:
    """Say whether another process can prove a tensor: by its signed digest, and not by reading whole files again."""
    return opened.proof is None or isinstance(lazy.source, VerifyingSource)


class Origin(msgspec.Struct, frozen=True):
    """What a tensor is made from.

    Attributes:
        source: The checkpoint that has it.
        name: Its name there.
        dtype: Its dtype there, by the name in the format.
        shape: Elements along each dimension.
        digest: The digest that it has there, or None.
        cast_to: The dtype that it gets.
        seed: Rounds at random instead of to nearest, if it is cast.
    """

    source: SourceToOpen
    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: bytes | None
    cast_to: str
    seed: int | None

    def made(self, opened: Opened, name: str) -> LazyTensor:
        """Return the tensor under its new name, cast."""
        lazy = self.source.found_in(opened, self.name, self.dtype, self.shape, self.digest).renamed(name)
        return lazy if self.cast_to == self.dtype else lazy.cast(self.cast_to, seed=self.seed)


def origins_of(
    new: LazyTensors, wanted: LazyTensors, opened: Sequence[tuple[SourceToOpen, Opened]], seed: int | None
) -> dict[str, Origin]:
    """Return the origins of tensors that were only renamed and cast: `wanted` has them in the same order.

    A checkpoint that another process could not open alike, such as an encrypted one, is the origin of nothing, nor is
    one whose tensors it could not prove alike.
    """
    found: dict[str, Origin] = {}
    usable = [(source, tensors) for source, tensors in opened if source.fingerprint is not None]
    for (name, lazy), (old, own) in zip(new.items(), wanted.items(), strict=True):
        source, tensors = next(((source, tensors) for source, tensors in usable if old in tensors), (None, None))
        is_alike = tensors is not None and own.shape == lazy.shape and is_provable_by_others(tensors, own)
        if source is not None and is_alike:
            found[name] = Origin(source, old, own.dtype, own.shape, own.digest, lazy.dtype, seed)
    return found
