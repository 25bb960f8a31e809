"""A checkpoint that many ranks wrote, as one mapping of name to lazy tensor, and as the state that was saved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any

import msgspec

from tensorkeep.errors import TransportError
from tensorkeep.formats import Description
from tensorkeep.formats.pickles import StorageRecord, TensorRecord, Unknown
from tensorkeep.kinds._checks import Checks, names_to_check
from tensorkeep.kinds._convertible import LeftOut, NestedData, StoredView
from tensorkeep.kinds._opened import Opened
from tensorkeep.kinds._options import LoadOptions
from tensorkeep.kinds.dcp._checks import PartChecks
from tensorkeep.kinds.dcp._files import ChunkFiles, OpenedChunk
from tensorkeep.kinds.dcp._metadata import SavedState
from tensorkeep.kinds.dcp._nested import nested
from tensorkeep.kinds.pickles import (
    PickleFile,
    left_out_of,
    nested_data,
    numbered,
    pairs_of,
    records_of,
    refuse_expanded_of,
    views_of,
)
from tensorkeep.phrases import counted
from tensorkeep.tensors import LazyTensor, Selector, chooser, load_together, nothing_chosen, selectors_of
from tensorkeep.transport import ByteSource


class DistributedCheckpoint(Opened):
    """Name to `LazyTensor` of what torch.distributed.checkpoint saved. Nothing was run, and no tensor's data read.

    Each tensor is put together of the parts that ranks wrote: a read opens only those that hold some of it. Values
    that are no tensors are in `tree`; where such a value holds tensors, their names begin with its own.

    Args:
        path: The directory.
        state: What was saved, and where each part of it is.
        tensors: Name to tensor, of those in the state.
        values: Name to value that is no tensor.
        files: The files.
        unknowns: What `.metadata` names beside the classes of torch that it is made of.
    """

    def __init__(
        self,
        path: str,
        state: SavedState,
        tensors: Mapping[str, LazyTensor],
        values: Mapping[str, PickleFile],
        files: ChunkFiles,
        unknowns: Mapping[str, Unknown] | None = None,
    ) -> None:
        self._path = path
        self._state = state
        self._tensors = dict(tensors)
        self._values = dict(values)
        self._files = files
        self._unknowns = dict(unknowns or {})
        self._is_closed = False
        inner = ((f"{name}.{own}", (file, own)) for name, file in self._values.items() for own in file)
        self._places = numbered(inner, taken=self._tensors)

    @property
    def path(self) -> str:
        """The directory."""
        return self._path

    @property
    def files(self) -> dict[str, ByteSource]:
        """Path below the directory to the file; a new dict."""
        return dict(self._files.sources)

    @property
    def format_name(self) -> str:
        """What kind of files these are."""
        return "files of torch.distributed.checkpoint"

    @property
    def sources(self) -> Mapping[str, ByteSource]:
        """Path of each file below the directory to its bytes."""
        return self._files.sources

    @property
    def has_tree(self) -> bool:
        """True: names are parts of the state that was saved."""
        return True

    @property
    def layout(self) -> SavedState:
        """Where each part of each tensor and value is."""
        return self._state

    @property
    def unknowns(self) -> dict[str, Unknown]:
        """Dotted name to what the pickles would have imported, called or built, and that was not; a new dict."""
        inner = ((prefix + own, it) for prefix, file in self.prefixed() for own, it in file.unknowns.items())
        return self._unknowns | numbered(((name.removesuffix("."), it) for name, it in inner), taken=self._unknowns)

    @property
    def dangers(self) -> dict[str, str]:
        """Names in pickles that could only do harm, and why; only with `dangerous="record"`, and a new dict."""
        return {name: why for file in self._values.values() for name, why in file.dangers.items()}

    @property
    def places(self) -> dict[str, tuple[PickleFile, str]]:
        """Name to the value that holds the tensor, and its name in there, of tensors in values; a new dict."""
        return dict(self._places)

    def file_of(self, name: str) -> str:
        """Return the file that holds a tensor, or its first part.

        Args:
            name: The tensor.

        Raises:
            TensorNotFoundError: If there is none of that name.
        """
        self[name]
        if name in self._state.tensors:
            chunks = self._state.tensors[name].chunks
            return chunks[0].item.file if chunks else next(iter(self._files.sources), "")
        holder, _ = self._places[name]
        return next(self._state.values[value].file for value, file in self._values.items() if file is holder)

    def shard_of(self, name: str) -> str:
        """Return the file that holds a tensor, or its first part."""
        return self.file_of(name)

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return the CRC-32 that the archives have of parts of tensors."""
        chosen = list(self) if names is None else names_to_check(names, self, self.path)
        parts = PartChecks(self._state, self._files)
        holders = {id(self._places[name][0]) for name in chosen if name not in self._tensors}
        for name in chosen:
            if name in self._tensors:
                parts.add_tensor(name)
        for name, value in self._values.items():
            if id(value) in holders:
                parts.add_value(self._state.values[name].file, value)
        return parts.result([], len(self._files.sources))

    @property
    def composites(self) -> Mapping[str, str]:
        """Dotted name to the kind of each tensor in a value whose parts are tensors of their own."""
        return {prefix + name: kind for prefix, file in self.prefixed() for name, kind in file.composites.items()}

    @property
    def empty(self) -> tuple[str, ...]:
        """Dotted names of tensors without data."""
        return tuple(prefix + name for prefix, file in self.prefixed() for name in file.empty)

    @property
    def is_replaceable(self) -> bool:
        """Whether all that was saved is tensors."""
        return not self._values

    def left_out(self) -> list[LeftOut]:
        """Return the objects in values that are not known to be data."""
        return left_out_of(self.prefixed())

    def views(self) -> Mapping[str, StoredView]:
        """Return where tensors in values are stored; those of the state share nothing."""
        return views_of(self._places)

    def nested(self) -> NestedData | None:
        """Return the state that was saved, as data."""
        return nested_data(self.value, {**self.records, **records_of(self._places)}, pairs_of(self._places))

    def refuse_expanded(self, names: Iterable[str]) -> None:
        """Refuse to read tensors in values that together take many times the size of their file."""
        refuse_expanded_of(self._places, names)

    def describe(self) -> Description:
        """Return what `.metadata` says: each tensor in the file that has its first part."""
        described = super().describe()
        first, *others = described.files or (None,)
        if first is None:
            return described
        first = msgspec.structs.replace(first, n_unknown=len(self.unknowns), dangers=self.dangers)
        return msgspec.structs.replace(described, files=(first, *others))

    def prefixed(self) -> Iterator[tuple[str, PickleFile]]:
        """Give each value that is no tensor with what the names of its tensors begin with."""
        yield from ((f"{name}.", file) for name, file in self._values.items())

    def opened_chunks(self, name: str) -> Iterator[tuple[str, OpenedChunk]]:
        """Find all parts of a tensor.

        Args:
            name: The tensor.

        Yields:
            Name of the file and the part; nothing for a tensor in a value.

        Raises:
            TensorkeepError: If a file holds something else where a part should be.
        """
        if name not in self._state.tensors:
            return
        tensor = self._state.tensors[name]
        for chunk in tensor.chunks:
            yield chunk.item.file, self._files.opened(name, tensor.dtype, chunk)

    @cached_property
    def records(self) -> dict[str, TensorRecord]:
        """Name to a record that stands for each tensor of the state, put together."""
        found = {}
        for name, lazy in self._tensors.items():
            strides = tuple(prod(lazy.shape[axis + 1 :]) for axis in range(lazy.ndim))
            storage = StorageRecord(name, lazy.dtype, "cpu", lazy.n_elements)
            found[name] = TensorRecord(storage, lazy.dtype, 0, lazy.shape, strides)
        return found

    @property
    def value(self) -> Any:
        """What was saved, with a record for each tensor, as `read_pickle` returns it for one file."""
        values = {name: file.document.value for name, file in self._values.items()}
        return nested({**self.records, **values}, self._state.paths)

    @cached_property
    def tree(self) -> Any:
        """What was saved, with a `LazyTensor` for each tensor and an `Unknown` for each object.

        Raises:
            FormatError: If names and paths contradict each other.
            LimitError: If most places of lists are empty.
        """
        values = {name: file.tree for name, file in self._values.items()}
        return nested({**self._tensors, **values}, self._state.paths)

    def load_tree(self, only: Selector | Iterable[Selector] | None = None) -> Any:
        """Load what was saved, or a part of it: nested dicts and lists with tensors of the framework.

        Args:
            only: Which parts: shell patterns for dotted names (`*` crosses dots), or functions of a name. What is
                left out of dicts is missing there; in lists None stands in its place. A value that one rank saved
                alone, such as a tuple, comes whole.

        Raises:
            TensorNotFoundError: If nothing is chosen.
            TypeError: If `only` is none of these.
            FormatError: If names and paths contradict each other.
            DtypeError: If the framework has no such dtype.
            LimitError: If most places of lists are empty, or a tensor has more dimensions than the framework allows.
            IntegrityError: If something else stands where a part of a tensor should be.
            TransportError: If the bytes cannot be read.
        """
        self._check_open()
        names = [*self._tensors, *self._values] if only is None else self._chosen(selectors_of(only))
        tensors = load_together({name: self._tensors[name] for name in names if name in self._tensors})
        values = {name: self._values[name].load_tree() for name in names if name in self._values}
        return nested({**tensors, **values}, self._state.paths)

    def load_state(self, options: LoadOptions) -> Any:
        """Load what was saved, or a part of it."""
        options.refuse_ties()
        return self.load_tree(only=options.only)

    def _chosen(self, selectors: list[Selector]) -> list[str]:
        """Return the names of what is chosen by its own name, or by that of what it stands in."""
        is_chosen = chooser(selectors)

        def is_wanted(name: str) -> bool:
            path = map(str, self._state.paths.get(name, (name,)))
            return any(map(is_chosen, accumulate(path, "{}.{}".format)))

        names = [name for name in (*self._tensors, *self._values) if is_wanted(name)]
        if not names:
            raise nothing_chosen(selectors, self, self.path)
        return names

    def _find(self, name: str) -> LazyTensor | None:
        self._check_open()
        if name in self._tensors:
            return self._tensors[name]
        place = self._places.get(name)
        return None if place is None else place[0][place[1]].renamed(name)

    def __iter__(self) -> Iterator[str]:
        yield from self._tensors
        yield from self._places

    def __len__(self) -> int:
        return len(self._tensors) + len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors or name in self._places

    def _check_open(self) -> None:
        if self._is_closed:
            raise TransportError("File is closed", path=self.path)

    def close(self) -> None:
        """Let go of all files; tensors that were read stay valid."""
        self._is_closed = True
        for file in self._values.values():
            file.close()
        self._files.close()

    def __repr__(self) -> str:
        extent = f"{counted(len(self), 'tensor')} in {counted(len(self._files.sources), 'file')}"
        return f"DistributedCheckpoint({self.path!r}, {extent}, {self.nbytes:,} bytes)"
