"""Open safetensors files: what they say of the state that they hold, and the state itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

from tensorkeep.arrays import DEFAULT_FRAMEWORK, LIBRARIES, adapter_for, decode_object, find_library, known_class
from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.formats.safetensors import Alias, State
from tensorkeep.kinds._convertible import StoredView
from tensorkeep.kinds._opened import Opened
from tensorkeep.kinds._options import LoadOptions
from tensorkeep.kinds.safetensors._aliases import alias_tensor
from tensorkeep.kinds.safetensors._attributes import WithAttributes
from tensorkeep.kinds.safetensors._tied import load_tied, refuse_copies
from tensorkeep.state import Classes, classes_by_name, decode_tree, part_libraries, selected, tensor_names
from tensorkeep.tensors import (
    LazyTensor,
    Selector,
    Ties,
    check_ties,
    chooser,
    chosen_names,
    nothing_chosen,
    selectors_of,
)


class SavedTensors(Opened):
    """The tensors of safetensors files, and the state that they were saved as.

    Where a whole state was saved, the names are those of its tensors, tied ones included.
    """

    loads_parts = True
    lists_aliases = True

    @property
    def format_name(self) -> str:
        """What kind of files these are."""
        return "safetensors"

    @property
    @abstractmethod
    def state(self) -> State | None:
        """What the files say of the state that was saved; None where they say nothing.

        Raises:
            FormatError: If it cannot be read.
            UnsupportedError: If it is of a later version.
        """

    @property
    @abstractmethod
    def aliases(self) -> Mapping[str, Alias]:
        """Name to what it is a view of, of tensors that share memory with others."""

    @abstractmethod
    def stored(self, name: str) -> LazyTensor:
        """Return a tensor as the files hold it, be it one that only holds the memory of others.

        Args:
            name: Its name in the files.
        """

    def load_state(self, options: LoadOptions) -> Any:
        """Load what was saved, or a part of it."""
        return self.load_tree(
            only=options.only,
            classes=options.classes,
            ties=options.ties,
            framework=options.framework,
            device=options.device,
        )

    def views(self) -> Mapping[str, StoredView]:
        """Return where tensors are stored that are the same as others."""
        ties = {name: alias.of for name, alias in self.aliases.items() if alias.is_whole}
        return {name: StoredView((self.path, of)) for name, of in (ties | {of: of for of in ties.values()}).items()}

    def _find_alias(self, name: str) -> LazyTensor | None:
        alias = self.aliases.get(name)
        return None if alias is None else alias_tensor(name, alias, self.stored(alias.of), self.path)

    @property
    def has_tree(self) -> bool:
        """Whether the files say what the names are parts of.

        Raises:
            FormatError: If what they say cannot be read.
            UnsupportedError: If it is of a later version.
        """
        return self.state is not None and len(self.state.tree) > 0

    @property
    def _library(self) -> str | None:
        """The array library that tensors came from, unless the tree says otherwise; None if it is not known."""
        return self.state.library if self.state else None

    @cached_property
    def _tree(self) -> Any:
        """The nodes of the tree, where there is one."""
        try:
            return self.state.nodes() if self.state else None
        except FormatError as error:
            raise error.with_fields(path=self.path) from None

    @property
    def tree(self) -> Any:
        """What was saved, with lazy tensors in it: nested data, or a dict of all tensors where nothing says more.

        Raises:
            FormatError: If what the files say of it is malformed.
            LimitError: If it is nested too deep.
            UnsupportedError: If it is of a later version.
        """
        if not self.has_tree:
            return dict(self.items())
        self._refuse_stale({name for name, _, _ in tensor_names(self._tree)}, is_whole=True)
        library, parts = self._library, part_libraries(self._tree)

        def lazy(name: str, members: Mapping[str, Any]) -> LazyTensor:
            marks = {key: member for key, member in members.items() if key != "library"}
            return self[name].marked(parts.get(name) or members.get("library") or library, marks)

        return decode_tree(
            self._tree,
            tensor=lazy,
            compose=lambda composed: composed,
            find_class=lambda _: None,
            content=lambda name: self[name].__array__(),
        )

    def load_tree(
        self,
        *,
        only: Selector | Iterable[Selector] | None = None,
        classes: Classes = (),
        ties: Ties = "share",
        framework: str | None = None,
        device: Any = "cpu",
    ) -> Any:
        """Load what was saved.

        Args:
            only: Which parts: shell patterns for dotted names (`*` crosses dots), or functions of a name. What is
                left out of dicts is missing there; in lists and tuples None stands in its place. All if None.
            classes: Dataclasses, enums and named tuples that may be made again, or name to class. Others become
                `NamedData`.
            ties: What to do with tensors that shared memory: let them `"share"` it again, `"copy"` it for each, or
                raise an `"error"`.
            framework: The array library that all tensors come out in; None for that which they were saved from.
            device: Where torch's tensors go.

        Returns:
            What was saved. Where nothing says more than names, a dict of NumPy arrays, or of the framework's tensors.

        Raises:
            FormatError: If what the files say of it is malformed, or the parts of a tensor do not fit together.
            LimitError: If it is nested too deep, or a tensor has more dimensions than the framework allows.
            TensorNotFoundError: If nothing is chosen.
            SharedMemoryError: If tensors share memory and `ties` is `"error"`.
            MissingDependencyError: If the library that tensors were saved from is not installed.
            DtypeError: If a dtype is unknown here or to the framework.
            UnsupportedError: If it is of a later version, or an argument is invalid.
            TypeError: If `only` is none of these.
            TransportError: If the bytes cannot be read.
        """
        check_ties(ties)
        if framework is not None or not self.has_tree:
            adapter_for(framework or self._library or DEFAULT_FRAMEWORK, device)
        try:
            if not self.has_tree:
                return self._load_flat(only, ties, framework, device)
            return self._load_nested(only, classes_by_name(classes), ties, framework, device)
        except FormatError as error:
            raise error.with_fields(path=self.path) from None

    def load(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Read whole tensors, each with memory of its own; see `LazyTensors.load`.

        Raises:
            LimitError: If tensors that share memory would take far more than what they share.
        """
        if self.aliases:
            names = list(self) if names is None else [names] if isinstance(names, str) else list(names)
            refuse_copies({name: self[name] for name in names}, self.aliases, self.stored)
        return super().load(names)

    def load_shared(self, *, framework: str = DEFAULT_FRAMEWORK, device: Any = "cpu") -> dict[str, Any]:
        """Load all tensors by name, whatever they were parts of; those that shared memory share it again.

        Args:
            framework: The array library that they come out in.
            device: Where torch's tensors go.

        Returns:
            Name to tensor, in the order of this mapping.

        Raises:
            DtypeError: If a dtype is unknown here or to the framework.
            LimitError: If a tensor has more dimensions than the framework allows.
            TransportError: If the bytes cannot be read.
        """
        return self._load_named(dict.fromkeys(self, framework), "share", device) if self.aliases else self.load()

    def _load_flat(self, only: _Only, ties: Ties, framework: str | None, device: Any) -> dict[str, Any]:
        if only is None and not self.aliases:
            names: Iterable[str] = self
        else:
            names = list(self) if only is None else chosen_names(self, selectors_of(only))
            self._refuse_nothing(bool(names), only)
        return self._load_named(dict.fromkeys(names, framework or self._library or DEFAULT_FRAMEWORK), ties, device)

    def _load_nested(
        self, only: _Only, classes: Mapping[str, type], ties: Ties, framework: str | None, device: Any
    ) -> Any:
        tree = self._tree if only is None else self._part(only)
        library = framework or self._library or DEFAULT_FRAMEWORK
        parts = part_libraries(tree) if self._may_have_parts else {}
        frameworks = {
            name: parts.get(name) or framework or members.get("library") or library
            for name, _, members in tensor_names(tree)
        }
        self._refuse_stale(frameworks, is_whole=only is None)
        tensors = self._load_named(frameworks, ties, device)
        attributed = WithAttributes(tensors, frameworks, self.aliases if ties == "share" else {})

        def find_class(name: str) -> type | None:
            return classes.get(name) or known_class(name)

        return decode_tree(
            tree,
            tensor=attributed.tensor,
            compose=lambda composed: decode_object(composed, device=device, find_class=find_class),
            find_class=find_class,
            content=tensors.__getitem__,
        )

    def _refuse_stale(self, names: Collection[str], *, is_whole: bool) -> None:
        """Refuse a tree of other tensors than those that are there."""
        missing = next((name for name in names if name not in self), None)
        added = next((name for name in self if name not in names), None) if is_whole else None
        strange = missing if missing is not None else added
        if strange is not None:
            raise FormatError(
                f"the tree of the state has {'a' if missing is not None else 'no'} tensor `{strange}`, and the file"
                f" has {'none' if missing is not None else 'one'}",
                path=self.path,
                tensor=strange,
                hint="Another program changed the file: tensorkeep.open(path, check=False).load() reads all by name",
            )

    @property
    def _may_have_parts(self) -> bool:
        """Whether tensors may be parts of other values; most states have none, and need not be walked for it."""
        text = bytes(self.state.tree) if self.state else b""
        return b'["composed"' in text or b'["byte' in text or b"\\" in text

    def _part(self, only: Selector | Iterable[Selector]) -> Any:
        """Return the nodes of what is chosen."""
        is_chosen = chooser(selectors_of(only))
        is_any = False

        def wanted(path: str) -> bool:
            nonlocal is_any
            is_any |= (found := is_chosen(path))
            return found

        part = selected(self._tree, wanted)
        self._refuse_nothing(is_any, only)
        return part

    def _refuse_nothing(self, is_any: bool, only: _Only) -> None:
        if not is_any and only is not None:
            raise nothing_chosen(selectors_of(only), self, self.path)

    def _load_whole(self, framework: str, device: Any) -> dict[str, Any]:
        """Read all tensors, which share no memory."""
        return load_tied(self, dict.fromkeys(self, framework), {}, self.stored, device=device)

    def _load_named(self, frameworks: Mapping[str, str], ties: Ties, device: Any) -> dict[str, Any]:
        libraries = set(frameworks.values())
        for framework in libraries:
            if find_library(framework) is None:
                raise UnsupportedError(
                    f"a tensor was saved from {framework!r}, an array library that is not known here",
                    path=self.path,
                    expected=" or ".join(LIBRARIES),
                    hint='framework="numpy" gives NumPy arrays',
                )
        is_all = len(frameworks) == len(self) and all(name in self for name in frameworks)
        if is_all and len(libraries) == 1 and not self.aliases:
            return self._load_whole(libraries.pop(), device)
        wanted = {name: self[name] for name in frameworks}
        return load_tied(wanted, frameworks, self.aliases, self.stored, device=device, ties=ties)


_Only: TypeAlias = Selector | Iterable[Selector] | None
