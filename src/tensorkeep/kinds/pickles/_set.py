"""Several pickles as one checkpoint: shards with an index, or the files of a directory."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from copy import copy
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

from tensorkeep.errors import IntegrityError
from tensorkeep.formats import Description
from tensorkeep.formats.pickles import Unknown
from tensorkeep.kinds.base import (
    Checks,
    LeftOut,
    LoadOptions,
    NestedData,
    OpenOptions,
    StoredView,
    combined,
    names_to_check,
    refuse_disagreement,
    refuse_missing_shards,
)
from tensorkeep.kinds.pickles._data import nested_data
from tensorkeep.kinds.pickles._file import PickleFile
from tensorkeep.kinds.pickles._in_files import left_out_of, pairs_of, records_of, refuse_expanded_of, views_of
from tensorkeep.kinds.pickles._keys import key_text, numbered
from tensorkeep.kinds.pickles._location import PickleLocation
from tensorkeep.kinds.pickles._nested import Loadable, NestedPickles
from tensorkeep.kinds.pickles._open import pickle_over
from tensorkeep.kinds.safetensors import read_index
from tensorkeep.layout import Index
from tensorkeep.parallel import Progress, ProgressMeter
from tensorkeep.tensors import LazyTensor, LazyTensors, Selector, TensorView, Ties
from tensorkeep.texts import counted
from tensorkeep.transport import ByteSource, join, open_source, split

_Joining: TypeAlias = tuple[dict[Any, Any], list[tuple[str, dict[Any, Any]]]]

_COMPARED = frozenset({str, int, float, bool, bytes})
_extension = re.compile(r"\.[a-z]+(?:\.tar)?$")


class PickleSet(NestedPickles):
    """Several open pickles: their tensors as one mapping of name to `LazyTensor`. Nothing was run.

    With an index, names are those in the shards. Without one, each name begins with the path of its file in the
    directory, without its extension and joined by dots: `mp_rank_00.model_optim_rng.model.embedding.weight`. If two
    tensors would have the same name, the second gets `#2`.

    Args:
        path: The index, or the directory.
        files: Path below the directory to the open file.
        index: The parsed index, or None if there is none.

    Raises:
        IntegrityError: If the index and the shards disagree; the message lists the tensors.
    """

    def __init__(self, path: str, files: Mapping[str, PickleFile], index: Index | None) -> None:
        self._path = path
        self._files = dict(files)
        self._index = index
        if index is not None:
            refuse_disagreement(path, self._files, index.weight_map)
        self._places = numbered((prefix + name, (file, name)) for prefix, file in self.prefixed() for name in file)

    @property
    def path(self) -> str:
        """Path of the index, or of the directory."""
        return self._path

    @property
    def files(self) -> dict[str, PickleFile]:
        """Path below the directory to the open file, as a new dict."""
        return dict(self._files)

    @property
    def format_name(self) -> str:
        """The kind of these files, for people."""
        return "files of pickles"

    @property
    def sources(self) -> Mapping[str, ByteSource]:
        """Path of each file below the directory to its bytes."""
        return {name: file.source for name, file in self._files.items()}

    @property
    def index(self) -> Index | None:
        """The parsed index; None if there is none."""
        return self._index

    @property
    def unknowns(self) -> dict[str, Unknown]:
        """Dotted name to each object that is not known to be data and was not built, as a new dict."""
        return numbered(
            (prefix + name, unknown) for prefix, file in self.prefixed() for name, unknown in file.unknowns.items()
        )

    @property
    def places(self) -> dict[str, tuple[PickleFile, str]]:
        """Name of each tensor to its file, and its name in that file, as a new dict."""
        return dict(self._places)

    @cached_property
    def tree(self) -> Any:
        """The saved values, with a `LazyTensor` for each tensor and an `Unknown` for each object.

        With an index, the values of all shards merged into one; without one, a dict of file path to value.

        Raises:
            IntegrityError: If two shards have different values in the same place.
        """
        return self._joined({name: file.tree for name, file in self._files.items()})

    def load_tree(
        self,
        only: Selector | Iterable[Selector] | None = None,
        *,
        ties: Ties = "share",
        progress: Progress | None = None,
    ) -> Any:
        """Load the saved values or a part of them, file by file; see `PickleFile.load_tree`.

        Args:
            only: Which parts to load, by the names in this mapping: shell patterns or predicates; None loads
                everything. Files with nothing that is chosen are missing.
            ties: What to do with tensors that shared memory in a file: `"share"`, `"copy"` or `"error"`.
            progress: Called with the bytes loaded so far and the total.

        Returns:
            With an index, the values of all shards merged into one; without one, a dict of file path to value.

        Raises:
            TensorNotFoundError: If `only` matches nothing.
            TypeError: If `only` is neither text, nor callable, nor an iterable of these.
            IntegrityError: If two shards have different values in the same place.
            DtypeError: If the framework does not have a dtype.
            FormatError: If the parts of a sparse, quantized or nested tensor do not fit together.
            LimitError: If tuples are nested too deeply, a tensor has more dimensions or elements than the framework
                allows, or copies would take many times the size of a file.
            SharedMemoryError: If tensors share memory and `ties` is `"error"`.
            TransportError: If the bytes cannot be read, or a file is closed.
        """
        return self.load_state(LoadOptions(only, ties=ties, progress=progress))

    def value_to_load(
        self, wanted: Callable[[str], bool] | None, *, ties: Ties, with_arrays: bool
    ) -> Loadable | None:
        """Return the saved values, or their parts whose names are wanted; None if none is."""
        found = {
            name: file.value_to_load(wanted, prefix.removesuffix("."), ties=ties, with_arrays=with_arrays)
            for name, (prefix, file) in zip(self._files, self.prefixed(), strict=True)
        }
        values = {name: value for name, value in found.items() if value is not None}
        return _ValuesToLoad(values, self._joined) if values or wanted is None else None

    def _joined(self, trees: dict[str, Any]) -> dict[Any, Any]:
        if self._index is None or not all(isinstance(tree, dict) for tree in trees.values()):
            return trees
        return _joined(trees, self._path)

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return the CRC-32 checks of storages in the archives."""
        chosen = list(self) if names is None else names_to_check(names, self, self.path)
        own_names: dict[str, list[str]] = {name: [] for name in self._files}
        names_of_files = {id(file): name for name, file in self._files.items()}
        for name in chosen:
            file, own = self._places[name]
            own_names[names_of_files[id(file)]].append(own)
        return combined({name: file.checks(own_names[name]) for name, file in self._files.items()})

    @property
    def composites(self) -> Mapping[str, str]:
        """Dotted name to kind for each sparse, quantized or nested tensor."""
        return {prefix + name: kind for prefix, file in self.prefixed() for name, kind in file.composites.items()}

    @property
    def empty(self) -> tuple[str, ...]:
        """Dotted names of tensors without data."""
        return tuple(prefix + name for prefix, file in self.prefixed() for name in file.empty)

    def left_out(self) -> list[LeftOut]:
        """Return the objects that are not known to be data."""
        return left_out_of(self.prefixed())

    def views(self) -> Mapping[str, StoredView]:
        """Return where each tensor is stored."""
        return views_of(self._places)

    def nested(self) -> NestedData | None:
        """Return the values of all files as data; None with an index, whose shards are dicts of tensors."""
        if self._index is not None:
            return None
        values = {name: file.document.value for name, file in self._files.items()}
        return nested_data(values, records_of(self._places), pairs_of(self._places))

    def refuse_expanded(self, names: Iterable[str]) -> None:
        """Refuse tensors much larger in total than their file, such as many views of a few bytes."""
        refuse_expanded_of(self._places, names)

    def unmapped(self, files: ExitStack) -> LazyTensors:
        """Return the tensors without mmap where they are gathered."""
        read = {id(file): file.unmapped(files) for file in self._files.values()}
        return TensorView({name: read[id(file)][own] for name, (file, own) in self._places.items()}, path=self.path)

    def describe(self) -> Description:
        """Return the contents of all files."""
        named = zip(self._files, self.prefixed(), strict=True)
        files = tuple(file.described(name, prefix) for name, (prefix, file) in named)
        return Description(files, split(self.path)[1])

    def prefixed(self) -> Iterator[tuple[str, PickleFile]]:
        """Yield each file with the prefix of its tensors' names."""
        if self._index is not None:
            yield from (("", file) for file in self._files.values())
            return
        stems = {name: _extension.sub("", name).replace("/", ".") for name in self._files}
        n_of_stem = Counter(stems.values())
        for name, file in self._files.items():
            stem = stems[name] if n_of_stem[stems[name]] == 1 else name.replace("/", ".")
            yield f"{stem}.", file

    def _find(self, name: str) -> LazyTensor | None:
        place = self._places.get(name)
        return None if place is None else place[0][place[1]].renamed(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def close(self) -> None:
        """Close all files. Tensors that were read stay valid; lazy ones can no longer be read."""
        for file in self._files.values():
            file.close()

    def __repr__(self) -> str:
        extent = f"{counted(len(self), 'tensor')} in {counted(len(self._files), 'file')}"
        return f"PickleSet({self.path!r}, {extent}, {self.nbytes:,} bytes)"


class _ValuesToLoad(msgspec.Struct, frozen=True, eq=False):
    """The values of several files, before they are loaded and joined."""

    values: Mapping[str, Loadable]
    join: Callable[[dict[str, Any]], Any]

    @property
    def nbytes(self) -> int:
        """Bytes that are loaded."""
        return sum(value.nbytes for value in self.values.values())

    def load(self, meter: ProgressMeter | None) -> Any:
        """Return the values with tensors."""
        return self.join({name: value.load(meter) for name, value in self.values.items()})


def open_pickled(location: PickleLocation, options: OpenOptions) -> PickleFile | PickleSet:
    """Open one pickle, or several as a set."""
    with ExitStack() as opened:

        def open_one(name: str) -> PickleFile:
            file = pickle_over(open_source(join(location.directory, name), backend=options.backend), options)
            opened.callback(file.close)
            return file

        if location.is_one:
            found: PickleFile | PickleSet = open_one(location.files[0])
        else:
            index = None if location.index is None else read_index(location.path)
            names = location.files if index is None else index.files
            refuse_missing_shards(location.path, location.directory, names)
            found = PickleSet(location.path, {name: open_one(name) for name in names}, index)
        opened.pop_all()
        return found


def _joined(trees: Mapping[str, dict[Any, Any]], path: str) -> dict[Any, Any]:
    """Merge dicts recursively, attributes of OrderedDicts included."""
    first, *others = trees.items()
    joined = copy(first[1])
    waiting: list[_Joining] = [(joined, others)]
    while waiting:
        into, parts = waiting.pop()
        inner: dict[Any, list[tuple[str, dict[Any, Any]]]] = {}
        for file, part in parts:
            for key, value in part.items():
                if isinstance(value, dict) and isinstance(into.get(key), dict):
                    inner.setdefault(key, []).append((file, value))
                elif not _is_same(into.setdefault(key, value), value):
                    raise IntegrityError(
                        f"`{key_text(key):.100}` is not the same in two shards",
                        path=path,
                        found=f"another value in {file}",
                        hint="Open the shards one by one",
                    )
        for key, dicts in inner.items():
            into[key] = copy(into[key])
            waiting.append((into[key], dicts))
        if type(into) is OrderedDict:
            waiting.append((vars(into), [(file, vars(part)) for file, part in parts if type(part) is OrderedDict]))
    return joined


def _is_same(value: Any, other: Any) -> bool:
    return value is other or (type(value) is type(other) and type(value) in _COMPARED and value == other)
