"""`Opened`: what everything that is open can be asked, whatever kind it is of.

A new kind must say `path`, `sources`, `close` and how to find a tensor by name. All else has a default that is right
for a file that holds tensors by name and nothing more.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any, ClassVar, Self

from tensorkeep.entries import TensorEntry
from tensorkeep.formats import Description, FileDescription
from tensorkeep.formats.safetensors import Alias
from tensorkeep.kinds._checks import Checks, names_to_check
from tensorkeep.kinds._convertible import LeftOut, NestedData, StoredView
from tensorkeep.kinds._options import LoadOptions
from tensorkeep.layout import Index
from tensorkeep.tensors import LazyTensor, LazyTensors, chosen_names, nothing_chosen, selectors_of
from tensorkeep.transport import ByteSource


class Opened(LazyTensors):
    """Lazy tensors of files that this object keeps open; also a context manager, which closes them."""

    loads_parts: ClassVar[bool] = False
    """Whether `load_state` reads only the parts that it is asked for, each as its options say."""

    lists_aliases: ClassVar[bool] = False
    """Whether `aliases` has every tensor that shares memory with others."""

    @property
    @abstractmethod
    def sources(self) -> Mapping[str, ByteSource]:
        """Name of each file, relative to the others, to its bytes."""

    @property
    @abstractmethod
    def format_name(self) -> str:
        """What kind of files these are, for people."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the files; tensors that were read stay valid, lazy ones can no longer be read."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def has_metadata(self) -> bool:
        """Whether there is free text at all, be it empty."""
        return False

    @property
    def metadata(self) -> dict[str, str]:
        """Free text by key; a new dict, empty where there is none."""
        return {}

    @property
    def index(self) -> Index | None:
        """The index of the files; None where there is none."""
        return None

    def shard_of(self, name: str) -> str:
        """Return the name of the file that holds a tensor, or its first piece.

        Args:
            name: The tensor.

        Raises:
            TensorNotFoundError: If there is none of that name.
        """
        self[name]
        return next(iter(self.sources))

    # Tensors that are stored otherwise than by their own names

    @property
    def aliases(self) -> Mapping[str, Alias]:
        """Name to what it is a view of, of tensors that share memory with others."""
        return {}

    @property
    def splits(self) -> Mapping[str, tuple[str, ...]]:
        """Name of each tensor that is stored in pieces to the names of its pieces."""
        return {} if self.index is None else self.index.splits

    def stored(self, name: str) -> LazyTensor:
        """Return a tensor as the files hold it.

        Args:
            name: Its name in the files.
        """
        return self[name]

    def verified(self) -> Opened:
        """Return the same tensors, checked when they are read whole, where the kind can and they have digests."""
        return self

    # What was saved beside tensors

    @property
    def has_tree(self) -> bool:
        """Whether the files say what the names are parts of."""
        return False

    @property
    def tree(self) -> Any:
        """What was saved, with a `LazyTensor` for each tensor: a dict of all tensors where nothing says more."""
        return dict(self.items())

    @property
    def unknowns(self) -> Mapping[str, Any]:
        """Dotted name to each object that is not known to be data, and was not made."""
        return {}

    def load_state(self, options: LoadOptions) -> Any:
        """Load what was saved, or a part of it: tensors by name where the files say no more."""
        if options.only is None:
            return self.load()
        selectors = selectors_of(options.only)
        names = chosen_names(self, selectors)
        if not names:
            raise nothing_chosen(selectors, self, self.path)
        return self.load(names)

    def load_tree(self) -> Any:
        """Load all that was saved."""
        return self.load_state(LoadOptions())

    # What it is checked and described by

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return what can be checked of some tensors (names or shell patterns), or of all."""
        chosen = self if names is None else names_to_check(names, self, self.path)
        return Checks(n_unprotected=len(list(chosen)), n_files=len(self.sources), n_tensors=len(self))

    def describe(self) -> Description:
        """Return what the headers say, for `tensorkeep inspect`."""
        entries: dict[str, dict[str, TensorEntry]] = {file: {} for file in self.sources}
        for name, lazy in self.items():
            entries[self.shard_of(name)][name] = TensorEntry(lazy.dtype, lazy.shape, (0, lazy.nbytes))
        files = [
            FileDescription(file, source.nbytes, 0, entries[file], form=self.format_name)
            for file, source in self.sources.items()
        ]
        whole = None if os.path.basename(self.path) in self.sources else os.path.basename(os.path.abspath(self.path))
        return Description(tuple(files), whole)

    # What a conversion takes over

    @property
    def composites(self) -> Mapping[str, str]:
        """Dotted name to the kind of each tensor whose parts are tensors of their own."""
        return {}

    @property
    def empty(self) -> tuple[str, ...]:
        """Dotted names of tensors without data."""
        return ()

    def left_out(self) -> list[LeftOut]:
        """Return the objects that a conversion would leave out."""
        return [LeftOut(name, self.path, str(unknown)) for name, unknown in self.unknowns.items()]

    def views(self) -> Mapping[str, StoredView]:
        """Return where tensors are stored that may share bytes with others."""
        return {}

    def nested(self) -> NestedData | None:
        """Return the nested value as data; None where names say all, or `state` does."""
        return None

    def refuse_expanded(self, names: Iterable[str]) -> None:
        """Refuse to read tensors that together take many times the size of their files, as views of few bytes can."""

    def unmapped(self, files: ExitStack) -> LazyTensors:  # noqa: ARG002
        """Return the tensors, none of which is gathered from a mapping: all of that would stay in memory."""
        return self

    @property
    def state_files(self) -> Iterable[str]:
        """The local files that must stay as they are while this is read."""
        return [source.name for source in self.sources.values() if os.path.isfile(source.name)]

    @property
    def is_replaceable(self) -> bool:
        """Whether safetensors files hold all that these do, so that they may take their place."""
        return True
