"""An orbax checkpoint as one mapping of name to lazy tensor, and as the tree that was saved."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import msgspec

from tensorkeep.arrays import is_tensor
from tensorkeep.errors import FormatError, TransportError
from tensorkeep.formats import Description
from tensorkeep.formats.orbax import Leaf, Step
from tensorkeep.kinds.base import Checks, LoadOptions, NestedData, Opened, TensorLeaf, names_to_check
from tensorkeep.kinds.orbax._folder import FolderSource
from tensorkeep.kinds.orbax._items import OpenedItem, built
from tensorkeep.state import NamedData
from tensorkeep.tensors import LazyTensor, chooser, nothing_chosen, selectors_of
from tensorkeep.texts import counted
from tensorkeep.transport import ByteSource

_NOTHING: Final = object()
"""What takes the place of values that were not chosen, until the tree is complete."""


class OrbaxCheckpoint(Opened):
    """An open orbax checkpoint: a mapping of name to `LazyTensor`, and in `tree` the value that was saved.

    Names are the keys that lead to a leaf, joined by dots. If several items were saved together, names begin with
    the item, and the tree is a dict of items. Numbers are tensors without dimensions.
    """

    def __init__(self, path: str, items: list[OpenedItem], step: Step, state_files: list[str]) -> None:
        self._path = path
        self._items = items
        self._step = step
        self._state_files = state_files
        self._sources = {
            _name_of(item): FolderSource(item.arrays.directory, item.arrays.nbytes) for item in items if item.arrays
        }
        self._is_closed = False
        self._tensors: dict[str, LazyTensor] = {}
        self._owners: dict[str, OpenedItem] = {}
        for item in items:
            for name, lazy in item.tensors.items():
                if name in self._tensors:
                    raise FormatError("two items have a tensor of one name", path=path, tensor=name, found=repr(name))
                self._tensors[name] = lazy
                self._owners[name] = item

    @property
    def path(self) -> str:
        """The directory."""
        return self._path

    @property
    def sources(self) -> Mapping[str, ByteSource]:
        """Path of each item below the directory to its files, which have a size and are not read as one."""
        return self._sources

    @property
    def state_files(self) -> list[str]:
        """The files that change if it is saved again."""
        return self._state_files

    @property
    def item_names(self) -> list[str] | None:
        """The names of the items that were saved together; None if there is one without a name."""
        if any(not item.path for item in self._items):
            return None
        return list(dict.fromkeys(item.path[0] for item in self._items))

    @property
    def format_name(self) -> str:
        """The kind of these files, for people."""
        return "an orbax checkpoint"

    @property
    def has_metadata(self) -> bool:
        """Whether anything was saved beside the tree."""
        return bool(self.metadata)

    @property
    def metadata(self) -> dict[str, str]:
        """What was saved beside the tree, as JSON: `"orbax"`, and `"orbax.custom_metadata"` by item."""
        custom = {".".join(item.path): item.custom_metadata for item in self._items if item.custom_metadata}
        texts = {"orbax": self._step.text}
        if custom:
            value = custom[""] if list(custom) == [""] else custom
            texts["orbax.custom_metadata"] = msgspec.json.encode(value).decode()
        return {key: text for key, text in texts.items() if text}

    @property
    def unknowns(self) -> Mapping[str, Any]:
        """Name to a description of each array that no tensor can be made of."""
        return {name: what for item in self._items for name, what in item.unknowns.items()}

    @property
    def has_tree(self) -> bool:
        """True: names are parts of the tree that was saved."""
        return True

    @property
    def is_replaceable(self) -> bool:
        """False: a directory of other files is never replaced."""
        return False

    @cached_property
    def tree(self) -> Any:
        """The saved value, with a `LazyTensor` for each array; None for one that no tensor can be made of."""
        return self._built(self._tensors.get)

    def _built(self, of_tensor: Callable[[str], Any]) -> Any:
        """Return the saved value, with something for each tensor."""
        values: dict[tuple[str, ...], Any] = {}
        for item in self._items:

            def of_leaf(leaf: Leaf, item: OpenedItem = item) -> Any:
                return item.texts[leaf.name] if leaf.is_text else of_tensor(item.prefix + leaf.name)

            values[item.path] = item.value if item.arrays is None else built(item.value, of_leaf)
        if list(values) == [()]:
            return values[()]
        root: dict[str, Any] = {}
        for path, value in values.items():
            branch = root
            for part in path[:-1]:
                branch = branch.setdefault(part, {})
            branch[path[-1]] = value
        return root

    def load_state(self, options: LoadOptions) -> Any:
        """Load the saved value or a part of it."""
        if options.only is None:
            loaded = self.load()
            return self._built(loaded.get)
        selectors = selectors_of(options.only)
        is_chosen = chooser(selectors)

        def is_wanted(name: str) -> bool:
            return any(map(is_chosen, accumulate(name.split("."), "{}.{}".format)))

        loaded = self.load([name for name in self if is_wanted(name)])
        tree = _chosen(self._built(lambda name: loaded.get(name, _NOTHING)), "", is_wanted)
        if tree is _NOTHING:
            raise nothing_chosen(selectors, self, self.path)
        return tree

    def nested(self) -> NestedData | None:
        """Return the saved value as data."""
        names = [[name] for name in self._tensors]
        leaves = {name: TensorLeaf(own, "numpy", {}) for name, own in zip(self._tensors, names, strict=True)}
        n_texts = sum(len(item.texts) for item in self._items)
        return NestedData(self._built(leaves.get), names, n_texts, ())

    def shard_of(self, name: str) -> str:
        """Return the path of the item that holds a tensor, below the directory."""
        self[name]
        return _name_of(self._owners[name])

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Count tensors whose checksums were right when the checkpoint was opened, and those without any."""
        chosen = list(self) if names is None else names_to_check(names, self, self.path)
        n_checked = sum(map(self._is_checked, chosen))
        n_unprotected = len(chosen) - n_checked
        return Checks(
            n_checked=n_checked, n_unprotected=n_unprotected, n_files=len(self._sources), n_tensors=len(self)
        )

    def _is_checked(self, name: str) -> bool:
        item = self._owners[name]
        return item.arrays is not None and item.arrays.is_checked(name.removeprefix(item.prefix), item.layouts[name])

    def describe(self) -> Description:
        """Return what is in each item, and the bytes that it takes."""
        described = super().describe()
        first, *others = described.files or (None,)
        if first is None:
            return described
        first = msgspec.structs.replace(first, metadata=self.metadata or None)
        return msgspec.structs.replace(described, files=(first, *others))

    def _find(self, name: str) -> LazyTensor | None:
        if self._is_closed:
            raise TransportError("File is closed", path=self.path)
        return self._tensors.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def close(self) -> None:
        """Close the files. Tensors that were read stay valid."""
        self._is_closed = True
        for item in self._items:
            item.close()

    def __repr__(self) -> str:
        return f"OrbaxCheckpoint({self.path!r}, {counted(len(self), 'tensor')}, {self.nbytes:,} bytes)"


def _name_of(item: OpenedItem) -> str:
    return "/".join(item.path) or os.path.basename(item.arrays.directory.rstrip("/") if item.arrays else "")


def _chosen(value: Any, path: str, is_wanted: Callable[[str], bool]) -> Any:
    """Return a tree without what was not chosen: missing from dicts, None elsewhere; `_NOTHING` if all is."""
    if value is _NOTHING:
        return value
    named = value.fields if isinstance(value, NamedData) else value
    if isinstance(named, dict):
        members = {key: _chosen(each, f"{path}{key}.", is_wanted) for key, each in named.items()}
    elif isinstance(named, list | tuple):
        members = {place: _chosen(each, f"{path}{place}.", is_wanted) for place, each in enumerate(named)}
    elif is_tensor(value):
        return value
    else:
        return value if is_wanted(path.removesuffix(".")) else _NOTHING
    if all(each is _NOTHING for each in members.values()):
        return value if not members and is_wanted(path.removesuffix(".")) else _NOTHING
    if isinstance(value, dict):
        return {key: each for key, each in members.items() if each is not _NOTHING}
    kept = {key: None if each is _NOTHING else each for key, each in members.items()}
    return (
        NamedData(value.kind, value.class_name, kept) if isinstance(value, NamedData) else type(value)(kept.values())
    )
