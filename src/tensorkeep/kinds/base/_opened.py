"""`Opened`: the interface of everything that is open, of any kind.

A new kind must define `path`, `sources`, `format_name`, `close` and how to find a tensor by name. All defaults suit a
file that holds tensors by name and nothing else.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from tensorkeep.arrays import DEFAULT_FRAMEWORK, ArrayT
from tensorkeep.dtypes import HOLDS_QUANTIZED
from tensorkeep.encryption import NEEDS_KEY, LockedSource
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import TensorkeepError, TransportError, UnsupportedError
from tensorkeep.formats import Description, FileDescription, StringArray, UntypedTensor, WithoutElements
from tensorkeep.formats.safetensors import Alias
from tensorkeep.kinds.base._checks import Checks, names_to_check
from tensorkeep.kinds.base._convertible import LeftOut, NestedData, StoredView
from tensorkeep.kinds.base._html import folded_others
from tensorkeep.kinds.base._options import LoadOptions
from tensorkeep.layout import Index
from tensorkeep.on_demand import imported
from tensorkeep.state import Node
from tensorkeep.tensors import (
    LazyTensor,
    LazyTensors,
    MemoryUse,
    chosen_names,
    explain,
    load_sharing,
    nothing_chosen,
    selectors_of,
    tensors_html,
)
from tensorkeep.texts import counted
from tensorkeep.transport import ByteSource

if TYPE_CHECKING:
    from tensorkeep.quantized import Layouts
    from tensorkeep.trust import Proof

_DEQUANTIZE: Final = "tensorkeep.quantized:dequantize"
_LAYOUTS: Final = "tensorkeep.quantized:layouts"
_NODES_OF: Final = "tensorkeep.kinds.pickles:nodes_of"
"""Imported by name: few who open a checkpoint ask for them."""


class Opened(LazyTensors[ArrayT]):
    """A mapping of name to `LazyTensor` over open files, and a context manager that closes them."""

    loads_parts: ClassVar[bool] = False
    """Whether `load_state` reads only the selected parts and honors all options."""

    proof: Proof | None = None
    """What was signed of the files and of what is beside them; None if no policy demands a signature."""

    loads_unknowns: ClassVar[bool] = False
    """Whether `load_state` returns `unknowns` in their places."""

    lists_aliases: ClassVar[bool] = False
    """Whether `aliases` lists every tensor that shares memory."""

    @property
    @abstractmethod
    def sources(self) -> Mapping[str, ByteSource]:
        """Name of each file, as a relative path, to its bytes."""

    @property
    @abstractmethod
    def format_name(self) -> str:
        """The kind of these files, for people."""

    @abstractmethod
    def close(self) -> None:
        """Close the files. Tensors that were read stay valid; lazy ones can no longer be read."""

    def _pairs(self) -> Iterator[tuple[str, LazyTensor[ArrayT]]]:
        """Yield each name and its tensor."""
        return ((name, self[name]) for name in self)

    def items(self) -> ItemsView[str, LazyTensor[ArrayT]]:
        """Return a view of all names with their tensors."""
        return _Items(self)

    def values(self) -> ValuesView[LazyTensor[ArrayT]]:
        """Return a view of all tensors."""
        return _Values(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _hint_for(self, name: str) -> str | None:
        if any(isinstance(source, LockedSource) and not source.shows_names for source in self.sources.values()):
            return f"Names are encrypted. {NEEDS_KEY}"
        if name in self.strings:
            return f"It is an array of {self.strings[name]}: .strings[{name!r}].load()"
        if name in self.unknowns:
            return f"It is not read as a tensor: {self.unknowns[name]}"
        return super()._hint_for(name) or (f"The only tensor is `{next(iter(self))}`" if len(self) == 1 else None)

    @property
    def has_metadata(self) -> bool:
        """Whether there is metadata, even if empty."""
        return False

    @property
    def metadata(self) -> dict[str, str]:
        """Free text by key, as a new dict."""
        return {}

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What headers say in types of their own, such as the keys of a GGUF file; `metadata` has them as text."""
        return {}

    @property
    def index(self) -> Index | None:
        """The index of the files; None if there is none."""
        return None

    @property
    def shards(self) -> Mapping[str, Opened[ArrayT]]:
        """Name of each file to the open file, for kinds whose files can be opened one by one."""
        return {os.path.basename(self.path): self} if len(self.sources) == 1 else {}

    def shard_of(self, name: str) -> str:
        """Return the name of the file that holds a tensor, or its first piece.

        Args:
            name: The tensor.

        Raises:
            TensorNotFoundError: If no tensor has that name.
        """
        self[name]
        return next(iter(self.sources))

    def with_dtypes(self, dtypes: Mapping[str, Any]) -> Opened[ArrayT]:  # noqa: ARG002
        """Return the same with dtypes for tensors whose dtype the file does not say.

        Raises:
            UnsupportedError: If files of this kind name all dtypes, or there are several files.
        """
        hint = "If a single file lacks a dtype, open that file by its own path"
        raise UnsupportedError("dtypes cannot be given for such a checkpoint", path=self.path, hint=hint)

    # Tensors that are not stored under their own names

    @property
    def aliases(self) -> Mapping[str, Alias]:
        """Name to `Alias` for each tensor that is stored as a view of another."""
        return {}

    @property
    def splits(self) -> Mapping[str, tuple[str, ...]]:
        """Name to the names of the pieces, for each tensor that is stored in pieces."""
        return {} if self.index is None else self.index.splits

    def stored(self, name: str) -> LazyTensor[ArrayT]:
        """Return a tensor that the files store under this name.

        Args:
            name: Its name in the files.
        """
        return self[name]

    def explain(self, framework: str = DEFAULT_FRAMEWORK, device: Any = "cpu") -> dict[str, MemoryUse]:
        """Say for each tensor whether an array library would share, copy, convert or refuse it, and why.

        Only headers are read. The answer applies to loading all tensors, except that tensors that share memory with
        others are judged one by one.

        Args:
            framework: The array library; it is imported.
            device: The device that the tensors would be loaded to.

        Returns:
            Name to `MemoryUse`.

        Raises:
            UnsupportedError: If there is no such library.
            MissingDependencyError: If it is not installed.
            DeviceError: If the device is not on this machine.
        """
        return explain(self, framework, device)

    @property
    def _under_policy(self) -> LazyTensors | None:
        return None if self.proof is None else self

    def companion(self, name: str, *, max_nbytes: int) -> bytes:
        """Return the content of a small file beside the checkpoint; see `LazyTensors.companion`."""
        try:
            content = super().companion(name, max_nbytes=max_nbytes)
        except TransportError:
            if self.proof is not None:
                self.proof.refuse_missing(name)
            raise
        if self.proof is not None:
            self.proof.check_content(name, content)
        return content

    def verified(self) -> Opened[ArrayT]:
        """Return the same tensors, compared with their digests when read, if the kind can and they have any."""
        return self

    # What was saved besides tensors

    @property
    def has_tree(self) -> bool:
        """Whether the files record the nested value that the tensors are part of."""
        return False

    @property
    def tree(self) -> Any:
        """The saved value, with a `LazyTensor` for each tensor; a dict of all tensors if only names were recorded."""
        return dict(self.items())

    @property
    def libraries(self) -> frozenset[str]:
        """The array libraries that tensors were saved from, as far as the files say."""
        return frozenset()

    @property
    def outline(self) -> Any:
        """The saved value as `tree` has it, with lazy tensors also where that has arrays: no elements are read."""
        return self.tree

    @property
    def unknowns(self) -> Mapping[str, Any]:
        """Dotted name to each object that is not known to be data and was not built."""
        return {}

    @property
    def pickles(self) -> tuple[str, ...]:
        """Names of parts that are pickles, in a format that is not made of pickles itself."""
        return ()

    @property
    def strings(self) -> Mapping[str, StringArray]:
        """Name to array of strings, for those that the files hold beside tensors."""
        return {}

    def load_state(self, options: LoadOptions) -> Any:
        """Load the saved value or a part of it; tensors by name if only names were recorded."""
        return self._load_named_of(self._numbers(options), options)

    def load_on_devices(self, options: LoadOptions) -> dict[str, Any]:
        """Load tensors by name, each to the device that the options have for it."""
        tensors = self._numbers(options)
        if options.only is not None:
            tensors = tensors.select(*selectors_of(options.only))
        placed = tensors.on_devices(options.device_map or {}, options.framework or "torch")
        return load_sharing(placed, options.progress)

    def _numbers(self, options: LoadOptions) -> LazyTensors[ArrayT]:
        if options.dequantize is None:
            return self
        numbers: LazyTensors[ArrayT] = imported(_DEQUANTIZE)(self, options.dequantize)
        return numbers

    def _load_named_of(self, tensors: LazyTensors[ArrayT], options: LoadOptions) -> dict[str, ArrayT]:
        """Load tensors of a view by name, or some of them."""
        if options.only is None:
            return tensors.load(progress=options.progress)
        selectors = selectors_of(options.only)
        names = chosen_names(tensors, selectors)
        if not names:
            unread = chosen_names([each.name for each in self.left_out()], selectors)
            raise nothing_chosen(selectors, tensors, self.path, self._hint_for(unread[0]) if unread else None)
        return tensors.load(names, progress=options.progress)

    def load_tree(self) -> Any:
        """Load the saved value."""
        return self.load_state(LoadOptions())

    # Verification and inspection

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return what can be checked for some tensors, by name or shell pattern, or for all."""
        chosen = self if names is None else names_to_check(names, self, self.path)
        return Checks(n_unprotected=len(list(chosen)), n_files=len(self.sources), n_tensors=len(self))

    def _repr_html_(self) -> str:
        facts = [type(self).__name__, self.format_name, counted(len(self.sources), "file")]
        others = folded_others(self.unknowns, self.strings, self.quantized())
        return tensors_html(self.path, facts, self, self.metadata, *others)

    def quantized(self) -> Layouts | None:
        """Return which tensors are quantized, and how; None if none are, or a configuration cannot be read."""
        if any(lazy.dtype in HOLDS_QUANTIZED for lazy in self.values()):
            with suppress(TensorkeepError):  # `check` says what is wrong
                found: Layouts = imported(_LAYOUTS)(self)
                return found if found else None
        return None

    def describe(self) -> Description:
        """Return the contents of the headers, for `tensorkeep inspect`."""
        entries: dict[str, dict[str, TensorEntry]] = {file: {} for file in self.sources}
        for name, lazy in self.items():
            entries[self.shard_of(name)][name] = TensorEntry(lazy.dtype, lazy.shape, (0, lazy.nbytes))
        files = [
            FileDescription(file, source.nbytes, 0, entries[file], form=self.format_name)
            for file, source in self.sources.items()
        ]
        whole = None if os.path.basename(self.path) in self.sources else os.path.basename(os.path.abspath(self.path))
        return Description(tuple(files), whole)

    # Conversion

    @property
    def composites(self) -> Mapping[str, str]:
        """Dotted name to kind for each tensor that consists of others, such as a sparse one."""
        return {}

    @property
    def empty(self) -> tuple[str, ...]:
        """Dotted names of tensors without data."""
        return ()

    def left_out(self) -> list[LeftOut]:
        """Return the objects that a conversion would leave out."""
        unknowns = [
            LeftOut(
                name,
                self.path,
                str(unknown),
                is_data=isinstance(unknown, WithoutElements),
                is_untyped=isinstance(unknown, UntypedTensor),
            )
            for name, unknown in self.unknowns.items()
        ]
        strings = [LeftOut(name, self.path, str(array), is_data=True) for name, array in self.strings.items()]
        return [*unknowns, *strings]

    def views(self) -> Mapping[str, StoredView]:
        """Return where tensors are stored, for those that may share bytes."""
        return {}

    def nested(self) -> NestedData | None:
        """Return the nested value as data; None if the names or `state` already describe it."""
        return None

    def require_names(self) -> None:
        """Refuse what is encrypted, with names hidden, if there is no key: its tensors are not those that were saved.

        Raises:
            EncryptedError: If that is so.
        """
        for source in self.sources.values():
            if isinstance(source, LockedSource):
                source.require_names()

    def nodes(self) -> Node:
        """Return the nested value as nodes of a tree; None if the names or `state` already describe it."""
        data = self.nested()
        return None if data is None else imported(_NODES_OF)(data)

    def refuse_expanded(self, names: Iterable[str]) -> None:
        """Refuse tensors much larger in total than their files, such as many views of a few bytes."""

    def unmapped(self, files: ExitStack) -> LazyTensors[ArrayT]:  # noqa: ARG002
        """Return the tensors without mmap where they are gathered: every page touched would stay in memory."""
        return self

    @property
    def state_files(self) -> Iterable[str]:
        """The local files that must not change while this is read."""
        return [source.name for source in self.sources.values() if os.path.isfile(source.name)]

    @property
    def is_replaceable(self) -> bool:
        """Whether safetensors files can hold everything in these files, and so may replace them."""
        return True


class _Items(ItemsView[str, LazyTensor[ArrayT]]):
    """Names and tensors, which are made one after another."""

    _mapping: Opened[ArrayT]

    def __iter__(self) -> Iterator[tuple[str, LazyTensor[ArrayT]]]:
        return self._mapping._pairs()


class _Values(ValuesView[LazyTensor[ArrayT]]):
    """Tensors, which are made one after another."""

    _mapping: Opened[ArrayT]

    def __iter__(self) -> Iterator[LazyTensor[ArrayT]]:
        return (lazy for _, lazy in self._mapping._pairs())
