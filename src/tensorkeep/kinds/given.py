"""Tensors that a caller has open already, in the place of a path: an open checkpoint, or a view."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tensorkeep.arrays import ArrayT
from tensorkeep.digests import BLAKE3
from tensorkeep.encryption import Encryption
from tensorkeep.errors import UnsupportedError
from tensorkeep.formats.safetensors import State
from tensorkeep.kinds.base import Check, Checks, Opened, names_to_check
from tensorkeep.paths import source_path
from tensorkeep.tensors import LazyTensor, LazyTensors, PiecedReader
from tensorkeep.transport import ByteSource

_EXPECTED = "paths, open checkpoints and views"


def source_of(given: object, caller: str) -> str | Opened:
    """Return the path of a checkpoint as text, or what is open as an open checkpoint."""
    return as_opened(given) if isinstance(given, LazyTensors) else source_path(given, caller, _EXPECTED)


def as_opened(given: LazyTensors) -> Opened:
    """Return what is open as an open checkpoint."""
    return given if isinstance(given, Opened) else OpenedView(given)


def sources_of(given: Any, caller: str) -> list[str | Opened]:
    """Do as `source_of` for one source or several."""
    is_one = isinstance(given, str | Mapping) or not isinstance(given, Iterable)
    return [source_of(each, caller) for each in ([given] if is_one else given)]


def path_of(source: str | Opened) -> str:
    """Return the path of a source, for messages."""
    return source.path if isinstance(source, Opened) else source


def refuse_to_open_again(source: Opened, **arguments: object) -> None:
    """Refuse arguments that say how to open a path: what is open already cannot follow them."""
    if given := [name for name, value in arguments.items() if value]:
        raise UnsupportedError(
            f"{' and '.join(f'{name}=' for name in given)} would say how to open a path, and this is open already",
            path=source.path,
            hint="Give it to tensorkeep.open, or give the path instead of what is open",
        )


class OpenedView(Opened[ArrayT]):
    """A view in the place of a checkpoint; who made it closes its files."""

    def __init__(self, tensors: LazyTensors[ArrayT]) -> None:
        self._tensors = tensors
        checkpoint = tensors._under_policy
        self.proof = checkpoint.proof if isinstance(checkpoint, Opened) else None

    @property
    def path(self) -> str:
        """The path of the files, or a name for error messages."""
        return self._tensors.path

    @property
    def sources(self) -> Mapping[str, ByteSource]:
        """Path of each file with tensors that the view leaves as they are, to its bytes."""
        return {source.name: source for lazy in self.values() if (source := lazy.source) is not None}

    @property
    def format_name(self) -> str:
        """What this is, for people."""
        return "a view"

    @property
    def has_metadata(self) -> bool:
        """Whether there is metadata, even if empty."""
        return self._tensors.has_metadata

    @property
    def metadata(self) -> dict[str, str]:
        """Free text by key, as a new dict."""
        return self._tensors.metadata

    @property
    def state(self) -> State | None:
        """What is known of the nested state that the tensors are parts of."""
        return self._tensors.state

    @property
    def encryption(self) -> Encryption | None:
        """How the files are encrypted; None if they are not, or there is no key for them."""
        return self._tensors.encryption

    @property
    def _under_policy(self) -> LazyTensors | None:
        return self._tensors._under_policy

    def companion(self, name: str, *, max_nbytes: int) -> bytes:
        """Return the content of a small file beside the checkpoint; see `LazyTensors.companion`."""
        return self._tensors.companion(name, max_nbytes=max_nbytes)

    @property
    def is_replaceable(self) -> bool:
        """False: the files may hold more than the view."""
        return False

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return the digests of the tensors that are in files as they are."""
        chosen = list(self) if names is None else names_to_check(names, self, self.path)
        of_each = [_checks_of(self[name]) for name in chosen]
        checks = [check for found in of_each for check in found]
        n_files = len({check.file for check in checks})
        return Checks(checks, n_unprotected=sum(not found for found in of_each), n_files=n_files, n_tensors=len(self))

    def close(self) -> None:
        """Do nothing: the files are the caller's."""

    def _find(self, name: str) -> LazyTensor[ArrayT] | None:
        return self._tensors._find(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _checks_of(lazy: LazyTensor) -> list[Check]:
    """Return the digests that files have for a tensor; none if it is computed."""
    source, span, digest = lazy.source, lazy.span, lazy.digest
    if source is None or span is None:
        return []
    if digest is not None:
        return [Check(source.name, lazy.name, source, span, BLAKE3, digest)]
    pieces = lazy.reader.pieces if isinstance(lazy.reader, PiecedReader) else ()
    return [
        Check(piece.source.name, piece.name, piece.source, piece.span, BLAKE3, piece.digest)
        for piece in pieces
        if piece.digest is not None
    ]
