"""A checkpoint that many ranks wrote, as one mapping of name to lazy tensor, and as the nested state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any, Final

import msgspec

from tensorkeep.errors import FormatError, LimitError, TransportError
from tensorkeep.formats import Description
from tensorkeep.formats.pickles import StorageRecord, TensorRecord, Unknown
from tensorkeep.kinds.base import Checks, LeftOut, LoadOptions, NestedData, Opened, StoredView, names_to_check
from tensorkeep.kinds.dcp._checks import PartChecks
from tensorkeep.kinds.dcp._files import ChunkFiles, OpenedChunk
from tensorkeep.kinds.dcp._metadata import SavedState
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
from tensorkeep.parallel import Progress
from tensorkeep.tensors import LazyTensor, Selector, Ties, chooser, load_with_progress, nothing_chosen, selectors_of
from tensorkeep.texts import counted
from tensorkeep.transport import ByteSource

_MAX_HOLES: Final = 1_000_000
"""List items for which nothing was saved, such as empty dicts."""


class DistributedCheckpoint(Opened):
    """An open checkpoint of torch.distributed.checkpoint: a mapping of name to `LazyTensor`. Nothing was run.

    Each tensor is assembled from the parts that ranks wrote; a read opens only the parts that it needs. Values that
    are not tensors are in `tree`. If such a value holds tensors, their names begin with its name.

    Args:
        path: The directory.
        state: What was saved, and where each part is.
        tensors: Name to tensor, for tensors of the state.
        values: Name to value, for values that are not tensors.
        files: The files.
        unknowns: Objects in `.metadata` other than torch's own metadata classes.
    """

    loads_unknowns = True
    """What is not known to be data is in the loaded value."""

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
        """Path below the directory to the file's bytes, as a new dict."""
        return dict(self._files.sources)

    @property
    def format_name(self) -> str:
        """The kind of these files, for people."""
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
        """Dotted name to each object that is not known to be data and was not built, as a new dict."""
        inner = (
            ((prefix + name).removesuffix("."), unknown)
            for prefix, file in self.prefixed()
            for name, unknown in file.unknowns.items()
        )
        return self._unknowns | numbered(inner, taken=self._unknowns)

    @property
    def dangers(self) -> dict[str, str]:
        """Name to reason for each name that could only do harm, as a new dict; needs `dangerous="record"`."""
        return {name: why for file in self._values.values() for name, why in file.dangers.items()}

    @property
    def places(self) -> dict[str, tuple[PickleFile, str]]:
        """Name of each tensor in a value to that value, and its name in it, as a new dict."""
        return dict(self._places)

    def file_of(self, name: str) -> str:
        """Return the name of the file that holds a tensor, or its first part.

        Args:
            name: The tensor.

        Raises:
            TensorNotFoundError: If no tensor has that name.
        """
        self[name]
        if name in self._state.tensors:
            chunks = self._state.tensors[name].chunks
            return chunks[0].item.file if chunks else next(iter(self._files.sources), "")
        holder, _ = self._places[name]
        return next(self._state.values[value].file for value, file in self._values.items() if file is holder)

    def shard_of(self, name: str) -> str:
        """Return the name of the file that holds a tensor, or its first part."""
        return self.file_of(name)

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return the CRC-32 checks of parts of tensors in the archives."""
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
        """Dotted name to kind for each sparse, quantized or nested tensor."""
        return {prefix + name: kind for prefix, file in self.prefixed() for name, kind in file.composites.items()}

    @property
    def empty(self) -> tuple[str, ...]:
        """Dotted names of tensors without data."""
        return tuple(prefix + name for prefix, file in self.prefixed() for name in file.empty)

    @property
    def is_replaceable(self) -> bool:
        """Whether only tensors were saved."""
        return not self._values

    def left_out(self) -> list[LeftOut]:
        """Return the objects in values that are not known to be data."""
        return left_out_of(self.prefixed())

    def views(self) -> Mapping[str, StoredView]:
        """Return where tensors in values are stored; tensors of the state share no memory."""
        return views_of(self._places)

    def nested(self) -> NestedData | None:
        """Return the saved state as data."""
        return nested_data(self.value, {**self.records, **records_of(self._places)}, pairs_of(self._places))

    def refuse_expanded(self, names: Iterable[str]) -> None:
        """Refuse tensors in values much larger in total than their file, such as many views of a few bytes."""
        refuse_expanded_of(self._places, names)

    def describe(self) -> Description:
        """Return the contents of the files: each tensor counts for the file that has its first part."""
        described = super().describe()
        first, *others = described.files or (None,)
        if first is None:
            return described
        first = msgspec.structs.replace(first, dangers=self.dangers)
        return msgspec.structs.replace(described, files=(first, *others))

    def prefixed(self) -> Iterator[tuple[str, PickleFile]]:
        """Yield each value that is not a tensor, with the prefix of its tensors' names."""
        yield from ((f"{name}.", file) for name, file in self._values.items())

    def opened_chunks(self, name: str) -> Iterator[tuple[str, OpenedChunk]]:
        """Yield the parts of a tensor.

        Args:
            name: The tensor.

        Yields:
            File name and part; nothing for a tensor in a value.

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
        """Name to a record for each assembled tensor of the state."""
        found = {}
        for name, lazy in self._tensors.items():
            strides = tuple(prod(lazy.shape[axis + 1 :]) for axis in range(lazy.ndim))
            storage = StorageRecord(name, lazy.dtype, "cpu", lazy.n_elements)
            found[name] = TensorRecord(storage, lazy.dtype, 0, lazy.shape, strides)
        return found

    @property
    def value(self) -> Any:
        """The saved state with a record for each tensor, in the form that `read_pickle` returns for one file."""
        values = {name: file.document.value for name, file in self._values.items()}
        return _nested({**self.records, **values}, self._state.paths)

    @cached_property
    def tree(self) -> Any:
        """The saved state, with a `LazyTensor` for each tensor and an `Unknown` for each object.

        Raises:
            FormatError: If names and paths contradict each other.
            LimitError: If too many list items are empty.
        """
        values = {name: file.tree for name, file in self._values.items()}
        return _nested({**self._tensors, **values}, self._state.paths)

    def load_tree(
        self,
        only: Selector | Iterable[Selector] | None = None,
        *,
        ties: Ties = "share",
        progress: Progress | None = None,
    ) -> Any:
        """Load the saved state or a part of it: nested dicts and lists with the framework's tensors.

        Args:
            only: Which parts to load: shell patterns for dotted names (`*` crosses dots), or predicates on a name;
                None loads everything. In dicts, other entries are missing; in lists, they are None. A value that was
                saved as one object, such as a tuple, is loaded whole.
            ties: What to do with tensors of one such object that shared memory: `"share"`, `"copy"` or `"error"`;
                others have memory of their own.
            progress: Called with the bytes of tensors loaded so far and the total.

        Returns:
            The saved state.

        Raises:
            TensorNotFoundError: If `only` matches nothing.
            TypeError: If `only` is neither text, nor callable, nor an iterable of these.
            SharedMemoryError: If tensors share memory and `ties` is `"error"`.
            FormatError: If names and paths contradict each other, or a file is malformed.
            DtypeError: If the framework does not have a dtype.
            LimitError: If too many list items are empty, or a tensor has more dimensions than the framework allows.
            IntegrityError: If a part of a tensor is missing from its file, or has another dtype or shape.
            TransportError: If the bytes cannot be read, or the checkpoint is closed.
        """
        return self.load_state(LoadOptions(only, ties=ties, progress=progress))

    def load_state(self, options: LoadOptions) -> Any:
        """Load the saved state or a part of it."""
        self._check_open()
        names = [*self._tensors, *self._values] if options.only is None else self._chosen(selectors_of(options.only))
        chosen = {name: self._tensors[name] for name in names if name in self._tensors}
        tensors = load_with_progress(chosen, options.progress)
        own = LoadOptions(ties=options.ties, framework=options.framework)
        values = {name: self._values[name].load_state(own) for name in names if name in self._values}
        return _nested({**tensors, **values}, self._state.paths)

    def _chosen(self, selectors: list[Selector]) -> list[str]:
        """Return the names that are selected themselves or by a container that they are in."""
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
        """Close all files. Tensors that were read stay valid; lazy ones can no longer be read."""
        self._is_closed = True
        for file in self._values.values():
            file.close()
        self._files.close()

    def __repr__(self) -> str:
        extent = f"{counted(len(self), 'tensor')} in {counted(len(self._files.sources), 'file')}"
        return f"DistributedCheckpoint({self.path!r}, {extent}, {self.nbytes:,} bytes)"


class _Branch(dict[Any, Any]):
    """A container under construction: a dict, or a list as a dict of index to item."""


def _nested(values: Mapping[str, Any], paths: Mapping[str, tuple[str | int, ...]]) -> dict[str, Any]:
    """Rebuild a nested state from names and the paths that lead to them."""
    root = _Branch()
    for name, value in values.items():
        path = paths.get(name, (name,))
        branch: Any = root
        for part in path[:-1]:
            branch = branch.setdefault(part, _Branch())
            if type(branch) is not _Branch:
                raise FormatError(f"the path of `{name}` leads through another value", tensor=name)
        if path[-1] in branch:
            raise FormatError(f"`{name}` has the same path as another value", tensor=name)
        branch[path[-1]] = value
    return dict(_Builder().items(root))


class _Builder:
    def __init__(self) -> None:
        self._n_holes = 0

    def items(self, branch: _Branch) -> Any:
        return [(key, self._value(value)) for key, value in branch.items()]

    def _value(self, value: Any) -> Any:
        if type(value) is not _Branch:
            return value
        places = [key for key in value if type(key) is int]
        if not places:
            return dict(self.items(value))
        if len(places) < len(value):
            raise FormatError("a part of the state is both a dict and a list", found=f"keys {list(value)[:5]}")
        length = max(places) + 1
        self._n_holes += length - len(places)
        if self._n_holes > _MAX_HOLES:
            raise LimitError("too many list items are empty", expected=f"at most {_MAX_HOLES:,}", found="more")
        made = [None] * length
        for place, item in self.items(value):
            made[place] = item
        return made
