"""What a conversion is made of: checkpoints of any kind, opened, and all that they hold beside tensors."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final, TypeAlias, cast

import msgspec

from tensorkeep.checkpoint import RewriteOptions, concatenate, identity_of, open_checkpoint, select_and_drop
from tensorkeep.collector import PausedCollector
from tensorkeep.conversion._state import say
from tensorkeep.conversion._ties import StoredView, Ties, ties_of, views_in, views_of_aliases
from tensorkeep.errors import UnsafeError, UnsupportedError
from tensorkeep.formats.pickles import Dangerous, PickleLimits
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.dcp import DistributedCheckpoint, find_distributed
from tensorkeep.kinds.pickles import (
    PickleFile,
    PickleSet,
    data_of,
    find_pickled,
    is_of_pairs,
    lazy_array,
    open_pickled,
)
from tensorkeep.kinds.safetensors import Checkpoint, TensorFile
from tensorkeep.kinds.storage_crc32 import Summed, summed_chunks, summed_storages
from tensorkeep.phrases import counted, listed
from tensorkeep.tensors import LazyTensor, LazyTensors, TensorView
from tensorkeep.transport import Backend, is_directory, open_source

_Opened: TypeAlias = Checkpoint | TensorFile | PickleFile | PickleSet | DistributedCheckpoint

_SUFFIX: Final = ".safetensors"
_HINT: Final = (
    "Nothing was run. See what it is with `tensorkeep scan`;"
    " drop_unknown=True (--drop-unknown) takes the tensors and leaves it out"
)


class _LeftOut(msgspec.Struct, frozen=True):
    """An object that is not known to be data."""

    name: str
    path: str
    what: str


class Sources:
    """Checkpoints that are to be written as one.

    Attributes:
        composites: Name to the kind of each tensor that is made of several.
        n_values: Plain values of the tree of a pickle.
        identities: Path of each file that says what the sources are, to what changes when it is replaced.
    """

    def __init__(
        self,
        paths: Sequence[str],
        variant: str | None,
        files: ExitStack,
        *,
        drop_unknown: bool,
        limits: PickleLimits,
        is_shared: bool,
    ) -> None:
        self._drop_unknown = drop_unknown
        self._opened = [(path, self._open(path, variant, files, limits)) for path in paths]
        self.identities = {path: identity_of(path) for path in self._files()}
        self.composites: dict[str, str] = {}
        self.n_values = 0
        self._empty: list[str] = []
        self._views: dict[str, StoredView] = {}
        self._left_out: list[_LeftOut] = []
        self._loose: dict[str, str] = {}
        opened = [source for _, source in self._opened]
        with PausedCollector():
            for source in opened:
                self._look_into(source)
            self._tensors = concatenate(opened if is_shared else [_unmapped(source, files) for source in opened])

    def _open(self, path: str, variant: str | None, files: ExitStack, limits: PickleLimits) -> _Opened:
        dangerous: Dangerous = "record" if self._drop_unknown else "refuse"
        variant = variant if is_directory(path) else None
        source: _Opened | None = None
        try:
            if path.endswith(_SUFFIX) and os.path.isfile(path):  # a pickle by such a name is only opened here
                location = find_pickled(path)
                if location is not None:
                    source = open_pickled(location, OpenOptions(dangerous=dangerous, limits=limits))
            if source is None:
                backend: Backend = "auto" if find_distributed(path) is None else "pread"  # see `_unmapped`
                source = cast(
                    "_Opened",
                    open_checkpoint(path, variant=variant, backend=backend, dangerous=dangerous, limits=limits),
                )
        except UnsafeError as error:
            raise UnsafeError(**error.fields() | {"hint": _HINT}) from None
        files.callback(source.close)
        return source

    def _files(self) -> Iterator[str]:
        for _, source in self._opened:
            if os.path.isfile(source.path):
                yield source.path
            yield from (file.path for _, file in _pickles(source))
            if isinstance(source, DistributedCheckpoint):
                yield from (file.name for file in source.files.values())

    def _look_into(self, source: LazyTensors) -> None:
        if isinstance(source, Checkpoint | TensorFile):
            self._views |= views_of_aliases(source)
        views = {id(file): views_in(file) for _, file in _pickles(source)}
        places = _places(source)
        self._views |= {
            name: view for name, (file, own) in places.items() if (view := views[id(file)].get(own)) is not None
        }
        for prefix, file in _pickles(source):
            self.composites |= {prefix + name: kind for name, kind in file.composites.items()}
            self._empty += [prefix + name for name in file.empty]
            self._left_out += [
                _LeftOut(prefix + name if name else prefix.removesuffix("."), file.path, unknown.qualified_name)
                for name, unknown in file.unknowns.items()
            ]

    @property
    def checkpoints(self) -> list[tuple[str, Checkpoint | TensorFile]]:
        """Path that was given, and what was opened there, of all sources that are safetensors files."""
        return [(path, source) for path, source in self._opened if isinstance(source, Checkpoint | TensorFile)]

    @property
    def left_out(self) -> dict[str, str]:
        """Dotted name to the class or function of each object that is no data, and what else is left out."""
        found: dict[str, str] = {}
        for unknown in self._left_out:
            found[f"{unknown.path}:{unknown.name}" if unknown.name in found else unknown.name] = unknown.what
        return found | self._loose

    def wanted(self, rewrite: RewriteOptions) -> LazyTensors:
        """Return the tensors that are wanted."""
        if not len(self._tensors):
            raise UnsupportedError("there are no tensors to convert", path=self._path)
        whole = self._with_state() if rewrite.select is None else self._tensors
        others = [*(unknown.name for unknown in self._left_out), *self._empty]
        tensors, others_wanted = select_and_drop(whole, rewrite, others)
        if not self._drop_unknown:
            self._refuse_unknown([unknown for unknown in self._left_out if unknown.name in others_wanted])
        self._refuse_empty([name for name in self._empty if name in others_wanted])
        if tensors.state is None and whole is not self._tensors:  # parts of values are nothing without them
            self.n_values, self._loose = 0, {}
            tensors = _among(tensors, self._tensors)
        return tensors

    def _with_state(self) -> LazyTensors:
        """Return all tensors with what is said of the nested value, where one source holds one."""
        source = self._opened[0][1]
        values = _values_of(source)
        if len(self._opened) > 1 or values is None:
            return self._tensors
        places = _places(source)
        names: dict[int, list[str]] = {}
        for name, (file, own) in places.items():
            names.setdefault(id(file.records[own]), []).append(name)
        if isinstance(source, DistributedCheckpoint):
            names |= {id(record): [name] for name, record in source.records.items()}
        data = data_of(values, names)
        said = say(data, self._tensors)
        self.n_values = data.n_values
        loose = [name for same in names.values() if said.names.isdisjoint(same) for name in same]
        self._loose = dict.fromkeys(data.odd_keys, "a key") | dict.fromkeys(loose, "beside a tensor, or in a set")
        pairs = {
            name: file.pairs_of(own)
            for name, (file, own) in places.items()
            if own in file.tensors and is_of_pairs(file.tensors[own])
        }
        tensors = {**self._tensors, **pairs}
        tensors |= {name: tensors[other] for name, other in said.again.items()}
        tensors |= {name: lazy_array(name, array, source.path) for name, array in said.arrays.items()}
        self._views |= {name: self._views[other] for name, other in said.again.items() if other in self._views}
        in_tree = {name: lazy for name, lazy in tensors.items() if name in said.names}
        return TensorView(in_tree, path=self._tensors.path, state=said.state)

    @property
    def _path(self) -> str:
        return ", ".join(path for path, _ in self._opened)

    def _refuse_unknown(self, unknowns: list[_LeftOut]) -> None:
        if unknowns:
            texts = [f"{unknown.what} at `{unknown.name}`" if unknown.name else unknown.what for unknown in unknowns]
            raise UnsafeError(
                f"{counted(len(unknowns), 'object')} not known to be data",
                path=self._path,
                found=listed(texts),
                hint=_HINT,
            )

    def _refuse_empty(self, names: list[str]) -> None:
        if names:
            raise UnsupportedError(
                f"{counted(len(names), 'tensor')} without data, saved from the device meta",
                path=self._path,
                found=listed(f"`{name}`" for name in names),
                hint="Leave them out with drop= (--drop)",
            )

    def refuse_to_replace(self, paths: Iterable[str]) -> None:
        """Refuse to write over a source that holds more than a file of tensors can: a link may lead to it."""
        pickles = {os.path.realpath(file.path) for _, source in self._opened for _, file in _pickles(source)}
        for path in paths:
            if os.path.realpath(path) in pickles:
                raise UnsupportedError(
                    "the destination is a source, whose other values would be lost",
                    path=path,
                    expected="another file",
                )

    def refuse_expanded(self, names: Container[str]) -> None:
        """Refuse to write tensors that together take many times the size of their file, as views of few bytes can."""
        for file, own_names in self._own_names(names):
            file.refuse_expanded(own_names)

    def ties(self, wanted: LazyTensors, new: LazyTensors, taken_keys: Container[str]) -> Ties:
        """Find out which tensors share memory."""
        return ties_of(((name, self._views.get(old)) for old, name in zip(wanted, new, strict=True)), taken_keys)

    def sums(self, wanted: LazyTensors) -> list[Summed]:
        """Return the storages of tensors that have a sum in their archive."""
        sums = [summed for file, names in self._own_names(wanted) for summed in summed_storages(file, names)]
        for _, source in self._opened:
            if isinstance(source, DistributedCheckpoint):
                sums += [summed for name in wanted for summed in summed_chunks(source, name)]
        return sums

    def _own_names(self, names: Container[str]) -> list[tuple[PickleFile, list[str]]]:
        """Return each file of pickles with what it calls those of its tensors that are meant."""
        found: dict[int, tuple[PickleFile, list[str]]] = {}
        for _, source in self._opened:
            for name, (file, own) in _places(source).items():
                if name in names:
                    found.setdefault(id(file), (file, []))[1].append(own)
        return list(found.values())


def _pickles(source: LazyTensors) -> Iterator[tuple[str, PickleFile]]:
    """Give each file of pickles of a source, with what the names of its tensors begin with."""
    if isinstance(source, PickleFile):
        yield "", source
    elif isinstance(source, PickleSet | DistributedCheckpoint):
        yield from source.prefixed()


def _places(source: LazyTensors) -> dict[str, tuple[PickleFile, str]]:
    """Return where each tensor of a source stands, and what it is called there; nothing but for pickles."""
    if isinstance(source, PickleFile):
        return {name: (source, name) for name in source}
    return source.places if isinstance(source, PickleSet | DistributedCheckpoint) else {}


def _values_of(source: LazyTensors) -> Any | None:
    """Return what `load` gives of a source, made of records; None where names say all."""
    if isinstance(source, PickleFile):
        return source.document.value
    if isinstance(source, DistributedCheckpoint):
        return source.value
    if isinstance(source, PickleSet) and source.index is None:
        return {name: file.document.value for name, file in source.files.items()}
    return None


def _among(tensors: LazyTensors, others: LazyTensors) -> TensorView:
    """Return those of other tensors whose names are among these."""
    return TensorView({name: others[name] for name in tensors if name in others}, path=others.path)


def _unmapped(source: LazyTensors, files: ExitStack) -> LazyTensors:
    """Return the tensors of a source, of which those that are gathered from here and there are read.

    Gathered from a mapping, they would leave all of a file in this process's memory.
    """
    if not isinstance(source, PickleFile | PickleSet):
        return source
    unmapped: dict[int, PickleFile] = {}

    def read(file: PickleFile, name: str) -> LazyTensor:
        lazy = file[name]
        if lazy.source is not None:
            return lazy
        if id(file) not in unmapped:
            unmapped[id(file)] = file.over(open_source(file.path, backend="pread"))
            files.callback(unmapped[id(file)].close)
        return unmapped[id(file)][name]

    return TensorView({name: read(*place) for name, place in _places(source).items()}, path=source.path)
