"""The checkpoints to convert, open, with everything that they hold besides tensors."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from operator import is_
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensorkeep.checkpoint import RewriteOptions, concatenate, identities_of, open_found, select_and_drop
from tensorkeep.collector import PausedCollector
from tensorkeep.conversion._state import named_state
from tensorkeep.conversion._ties import Ties, ties_of
from tensorkeep.encryption import Keys
from tensorkeep.errors import UnsafeError, UnsupportedError
from tensorkeep.formats.pickles import PickleLimits
from tensorkeep.kinds import LeftOut, Opened, OpenOptions, Place, StoredView
from tensorkeep.kinds.given import path_of, refuse_to_open_again
from tensorkeep.kinds.pickles import lazy_array
from tensorkeep.kinds.registry import find_kind
from tensorkeep.quantized.computing import part_names, with_numbers
from tensorkeep.tensors import LazyTensors, TensorView
from tensorkeep.texts import counted, listed
from tensorkeep.transport import is_directory, listing_cache

if TYPE_CHECKING:
    from tensorkeep.trust import Trust

_MARK: Final = "format"
_FOREIGN_MARK: Final = "source.format"
_DROP: Final = "drop_unknown=True (--drop-unknown) converts everything else"
_HINT: Final = f"Nothing was run. `tensorkeep scan` shows what would be run elsewhere; {_DROP}"


class Sources:
    """Checkpoints to be written as one.

    Attributes:
        opened: The checkpoints.
        composites: Name to kind for tensors that consist of several.
        n_values: Plain values in the tree.
        identities: Path of each file that must not change during the conversion, to its identity.
    """

    def __init__(
        self,
        sources: Sequence[str | Opened],
        variant: str | None,
        files: ExitStack,
        *,
        drop_unknown: bool,
        limits: PickleLimits,
        is_shared: bool,
        engine: str | None = None,
        dtypes: Mapping[str, Any] | None = None,
        dequantize: Any = None,
        keys: Keys | None = None,
        trust: Trust | None = None,
    ) -> None:
        self._drop_unknown = drop_unknown
        self._given = sources
        options = OpenOptions(
            dangerous="record" if drop_unknown else "refuse",
            limits=limits,
            engine=engine,
            dtypes=dtypes or {},
            keys=keys,
        )
        self.opened = [self._open(source, variant, files, options, trust) for source in sources]
        self.identities = identities_of(self.opened)
        self.composites: dict[str, str] = {}
        self.n_values = 0
        self._empty: list[str] = []
        self._views: dict[str, StoredView] = {}
        self._left_out: list[LeftOut] = []
        self._loose: dict[str, str] = {}
        with PausedCollector():
            for source in self.opened:
                self._look_into(source)
            read = self.opened if is_shared else [source.unmapped(files) for source in self.opened]
            numbers = read if dequantize is None else [with_numbers(each, dequantize) for each in read]
            self._tensors = self._without_foreign_mark(concatenate(numbers))
            self._is_as_stored = all(map(is_, read, numbers))

    def _open(
        self, path: str | Opened, variant: str | None, files: ExitStack, options: OpenOptions, trust: Trust | None
    ) -> Opened:
        if isinstance(path, Opened):
            arguments = {"variant": variant, "engine": options.engine, "dtypes": options.dtypes, "key": options.keys}
            refuse_to_open_again(path, **arguments, trust=trust)
            path.require_names()
            return path
        options = msgspec.structs.replace(options, variant=variant if is_directory(path) else None)
        try:
            with listing_cache(path) as given:
                # Only a conversion looks into a file named .safetensors: it may be a pickle.
                place = Place(given, variant=options.variant, trusts_names=not os.path.isfile(path))
                found = find_kind(place)
                if found.kind.is_gathered:
                    options = msgspec.structs.replace(options, backend="pread")
                source = open_found(place, found, options, trust)
        except UnsafeError as error:
            raise UnsafeError(**error.fields() | {"hint": _HINT}) from None
        files.callback(source.close)
        source.require_names()
        return source

    def _without_foreign_mark(self, tensors: LazyTensors) -> LazyTensors:
        """Call metadata `source.format` if they are `format` in another format: in safetensors, that is a mark."""
        metadata = tensors.metadata if tensors.has_metadata else {}
        if _MARK not in metadata or any(source.format_name.startswith("safetensors") for source in self.opened):
            return tensors
        renamed = {_FOREIGN_MARK if key == _MARK else key: text for key, text in metadata.items()}
        return TensorView(dict(tensors), path=tensors.path, metadata=renamed, state=tensors.state, beside=tensors)

    def _look_into(self, source: Opened) -> None:
        self._views |= source.views()
        self.composites |= source.composites
        self._empty += source.empty
        self._left_out += source.left_out()

    @property
    def named(self) -> list[tuple[str, Opened]]:
        """The path of each source, with the open checkpoint."""
        return list(zip(map(path_of, self._given), self.opened, strict=True))

    @property
    def by_path(self) -> list[tuple[str, Opened]]:
        """The same for those that were given by their paths, so that others can open them too."""
        return [(path, each) for path, each in zip(self._given, self.opened, strict=True) if isinstance(path, str)]

    @property
    def left_out(self) -> dict[str, str]:
        """Dotted name to the class or function of each object that is not data, and whatever else is left out."""
        found: dict[str, str] = {}
        for unknown in self._left_out:
            found[f"{unknown.path}:{unknown.name}" if unknown.name in found else unknown.name] = unknown.what
        return found | self._loose

    def stored_names(self, names: Iterable[str]) -> Iterator[str]:
        """Give the names of the stored tensors that some are computed from, or are."""
        for name in names:
            yield from part_names(self._tensors[name]) if name in self._tensors else (name,)

    def wanted(self, rewrite: RewriteOptions, *, with_tree: bool = True) -> LazyTensors:
        """Return the selected tensors, with the tree if it is converted too."""
        if not len(self._tensors):
            raise UnsupportedError("there are no tensors to convert", path=self._path)
        whole = self._with_state() if with_tree and rewrite.select is None else self._tensors
        others = [*(unknown.name for unknown in self._left_out), *self._empty]
        tensors, others_wanted = select_and_drop(whole, rewrite, others)
        if not self._drop_unknown:
            self._refuse_unknown([each for each in self._left_out if each.name in others_wanted and not each.is_data])
        self._refuse_empty([name for name in self._empty if name in others_wanted])
        if tensors.state is None and whole is not self._tensors:  # without the tree, its extra tensors are useless
            self.n_values, self._loose = 0, {}
            tensors = _among(tensors, self._tensors)
        return tensors

    def _with_state(self) -> LazyTensors:
        """Return all tensors, with the tree if a single source holds a nested value."""
        source = self.opened[0]
        data = source.nested() if len(self.opened) == 1 and self._is_as_stored else None
        if data is None:
            return self._tensors
        named = named_state(data, self._tensors)
        self.n_values = data.n_values
        loose = [name for same in data.names if named.names.isdisjoint(same) for name in same]
        self._loose = dict.fromkeys(data.odd_keys, "a key") | dict.fromkeys(loose, "beside a tensor, or in a set")
        tensors = {**self._tensors, **data.replaced}
        tensors |= {name: tensors[other] for name, other in named.repeats.items()}
        tensors |= {name: lazy_array(name, array, source.path) for name, array in named.arrays.items()}
        self._views |= {name: self._views[other] for name, other in named.repeats.items() if other in self._views}
        in_tree = {name: lazy for name, lazy in tensors.items() if name in named.names}
        metadata = self._tensors.metadata if self._tensors.has_metadata else None
        return TensorView(in_tree, path=self._tensors.path, metadata=metadata, state=named.state)

    @property
    def _path(self) -> str:
        return ", ".join(map(path_of, self._given))

    def _refuse_unknown(self, unknowns: list[LeftOut]) -> None:
        if unknowns:
            texts = [f"`{unknown.name}`: {unknown.what}" if unknown.name else unknown.what for unknown in unknowns]
            is_run = any(unknown.is_run for unknown in unknowns)
            raise UnsafeError(
                f"{counted(len(unknowns), 'object')} not {'known to be data' if is_run else 'read as a tensor'}",
                path=self._path,
                found=listed(texts),
                hint=_HINT if is_run else _hint_for_unread(unknowns),
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
        """Refuse to overwrite a source, even through a link, that holds more than safetensors files can."""
        sources = [
            source for opened in self.opened if not opened.is_replaceable for source in opened.sources.values()
        ]
        kept = {os.path.realpath(source.name) for source in sources}
        for path in paths:
            if os.path.realpath(path) in kept:
                raise UnsupportedError(
                    "the destination is a source, whose other values would be lost",
                    path=path,
                    expected="another file",
                )

    def refuse_expanded(self, names: Container[str]) -> None:
        """Refuse tensors much larger in total than their file, such as many views of a few bytes."""
        for source in self.opened:
            source.refuse_expanded([name for name in source if name in names])

    def ties(self, wanted: LazyTensors, new: LazyTensors, taken_keys: Container[str]) -> Ties:
        """Return which of the new tensors share memory."""
        return ties_of(((name, self._views.get(old)) for old, name in zip(wanted, new, strict=True)), taken_keys)


def _hint_for_unread(unknowns: list[LeftOut]) -> str:
    """Say how to convert a file with tensors that are not read."""
    untyped = next((unknown.name for unknown in unknowns if unknown.is_untyped), None)
    if untyped is None:
        return _DROP
    return f'dtypes={{"{untyped}": "bfloat16"}} (--dtype {untyped}=bfloat16) reads it as this dtype; {_DROP}'


def _among(tensors: LazyTensors, others: LazyTensors) -> TensorView:
    """Return the tensors of `others` whose names are in `tensors`."""
    return TensorView({name: others[name] for name in tensors if name in others}, path=others.path)
