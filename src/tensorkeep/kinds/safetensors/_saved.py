"""`SavedTensors`: open safetensors files, and the state that was saved in them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

from tensorkeep.arrays import (
    DEFAULT_FRAMEWORK,
    LIBRARIES,
    ArrayT,
    adapter_for,
    decode_object,
    find_library,
    known_class,
    refuse_unused_device,
)
from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.formats.safetensors import Alias, State, parse_state
from tensorkeep.kinds.base import LoadOptions, Opened, StoredView
from tensorkeep.kinds.safetensors._aliases import alias_tensor, sharing_of
from tensorkeep.kinds.safetensors._attributes import WithAttributes
from tensorkeep.kinds.safetensors._tied import load_tied, refuse_copies
from tensorkeep.on_demand import imported
from tensorkeep.parallel import Progress
from tensorkeep.state import Classes, classes_by_name, decode_tree, part_libraries, selected, tensor_names
from tensorkeep.tensors import (
    LazyTensor,
    LazyTensors,
    Selector,
    TensorView,
    Ties,
    check_ties,
    chooser,
    chosen_names,
    nothing_chosen,
    selectors_of,
)


class SavedTensors(Opened[ArrayT]):
    """The tensors of open safetensors files, and the nested state that they were saved from.

    If a whole state was saved, the names are those of all its tensors, tied ones included.
    """

    loads_parts = True
    lists_aliases = True

    @property
    def format_name(self) -> str:
        """The kind of these files, for people."""
        return "safetensors"

    @property
    @abstractmethod
    def state_text(self) -> str | None:
        """The description of the saved state, as text; None if there is none."""

    @abstractmethod
    def stored_names(self) -> Collection[str]:
        """Return the names of all tensors that are stored, once if they have several."""

    @cached_property
    def state(self) -> State | None:
        """The description of the saved state; None if there is none.

        Raises:
            FormatError: If it is malformed.
            UnsupportedError: If it is of a later version.
        """
        text = self.state_text
        try:
            return None if text is None else parse_state(text)
        except (FormatError, UnsupportedError) as error:
            raise error.with_fields(path=self.path) from None

    @cached_property
    def _sharing(self) -> State | None:
        """The description of shared memory; None if there is none that this version can read."""
        return sharing_of(self.state_text, self.stored_names(), self.path)

    @property
    def aliases(self) -> Mapping[str, Alias]:
        """Name to `Alias` for each tensor that is stored as a view of another."""
        return self._sharing.aliases if self._sharing else {}

    @abstractmethod
    def stored(self, name: str) -> LazyTensor:
        """Return a tensor that the files store under this name, such as a storage that only views use.

        Args:
            name: Its name in the files.

        Raises:
            KeyError: If the files store nothing under this name.
        """

    def load_state(self, options: LoadOptions) -> Any:
        """Load the saved state or a part of it."""
        check_ties(options.ties)
        if options.framework is not None or not self.has_tree:
            adapter_for(options.framework or self._library or DEFAULT_FRAMEWORK, options.device)
        if options.dequantize is not None:
            numbers = imported("tensorkeep.quantized.computing:with_numbers")(self, options.dequantize)
            if numbers is not self:
                return self._load_named_of(self._for_library(numbers, options), options)
        try:
            return self._load_nested(options) if self.has_tree else self._load_flat(options)
        except FormatError as error:
            raise error.with_fields(path=self.path) from None

    def _for_library(self, numbers: LazyTensors, options: LoadOptions) -> LazyTensors:
        """Return computed tensors for the library that they were saved from; refuse a state with more than names."""
        if not self.has_tree:
            return numbers
        if not isinstance(self.tree, Mapping) or self.tree.keys() != set(self):
            raise UnsupportedError(
                "quantized tensors are dequantized by name, and this is a nested state",
                path=self.path,
                hint="tensorkeep.quantized.dequantize(tensorkeep.open(path), dtype).load() gives its tensors by name",
            )
        if options.framework is not None or self._library is None:
            return numbers
        placed = {name: lazy.with_framework(self._library, options.device) for name, lazy in numbers.items()}
        return TensorView(placed, path=self.path)

    def views(self) -> Mapping[str, StoredView]:
        """Return where tensors with several names are stored."""
        ties = {name: alias.of for name, alias in self.aliases.items() if alias.is_whole}
        return {name: StoredView((self.path, of)) for name, of in (ties | {of: of for of in ties.values()}).items()}

    def _find_alias(self, name: str) -> LazyTensor | None:
        alias = self.aliases.get(name)
        return None if alias is None else alias_tensor(name, alias, self.stored(alias.of), self.path)

    @property
    def has_tree(self) -> bool:
        """Whether the files record the nested state that the tensors are part of.

        Raises:
            FormatError: If the description of the state is malformed.
            UnsupportedError: If it is of a later version.
        """
        return self.state is not None and len(self.state.tree) > 0

    @property
    def _library(self) -> str | None:
        """The array library of all tensors for which the tree names no other; None if unknown."""
        return self.state.library if self.state else None

    @property
    def libraries(self) -> frozenset[str]:
        """The array libraries that tensors were saved from, as far as the files say."""
        others = (members.get("library") for _, _, members in tensor_names(self._tree)) if self.has_tree else ()
        return frozenset(filter(None, (self._library, *others)))

    @cached_property
    def _tree(self) -> Any:
        """The nodes of the tree; None if there is none."""
        try:
            return self.state.nodes() if self.state else None
        except FormatError as error:
            raise error.with_fields(path=self.path) from None

    @property
    def tree(self) -> Any:
        """The saved state with lazy tensors in it; a dict of all tensors if only names were recorded.

        Raises:
            FormatError: If the description of the state is malformed, or does not fit the tensors.
            LimitError: If it is nested too deeply.
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
        progress: Progress | None = None,
    ) -> Any:
        """Load the saved state.

        Args:
            only: Which parts to load: shell patterns for dotted names (`*` crosses dots), or predicates on a name;
                None loads everything. In dicts, other entries are missing; in lists and tuples, they are None.
            classes: Dataclasses, enums and named tuples that may be rebuilt, as classes or as a mapping of name to
                class. Others become `NamedData`.
            ties: What to do with tensors that shared memory: `"share"` it again, `"copy"` it for each, or raise an
                `"error"`.
            framework: The array library for all tensors; None for the one that each was saved from.
            device: The device for torch tensors.
            progress: Called with the bytes loaded so far and the total.

        Returns:
            The saved state; if only names were recorded, a dict of name to tensor.

        Raises:
            FormatError: If the description of the state is malformed, or the parts of a tensor do not fit together.
            LimitError: If it is nested too deeply, a tensor has more dimensions than the framework allows, or copies
                would take far more memory than what they share.
            TensorNotFoundError: If `only` matches nothing.
            SharedMemoryError: If tensors share memory and `ties` is `"error"`.
            MissingDependencyError: If the library that tensors were saved from is not installed.
            DtypeError: If tensorkeep or the framework does not know a dtype.
            IntegrityError: If tensors are verified and one does not match its digest.
            DeviceError: If the device is not on this machine, or all tensors come out as NumPy arrays.
            UnsupportedError: If the description is of a later version, or an argument is invalid.
            TypeError: If `only` is neither text, nor callable, nor an iterable of these.
            TransportError: If the bytes cannot be read, or the file is closed.
        """
        return self.load_state(LoadOptions(only, classes, ties, framework, device, progress=progress))

    def load(self, names: Iterable[str] | None = None, *, progress: Progress | None = None) -> dict[str, ArrayT]:
        """Read whole tensors, each into its own memory; see `LazyTensors.load`.

        Raises:
            LimitError: If copies of tensors that share memory would take far more than what they share.
        """
        if self.aliases:
            names = list(self) if names is None else [names] if isinstance(names, str) else list(names)
            refuse_copies({name: self[name] for name in names}, self.aliases, self.stored)
        return super().load(names, progress=progress)

    def load_shared(self, *, framework: str = DEFAULT_FRAMEWORK, device: Any = "cpu") -> dict[str, Any]:
        """Load all tensors by name, without the nested state; those that shared memory share it again.

        Args:
            framework: The array library for all tensors.
            device: The device for torch tensors.

        Returns:
            Name to tensor, in the order of this mapping.

        Raises:
            DtypeError: If tensorkeep or the framework does not know a dtype.
            LimitError: If a tensor has more dimensions than the framework allows.
            TransportError: If the bytes cannot be read.
        """
        shared = LoadOptions(device=device)
        return self._load_named(dict.fromkeys(self, framework), shared) if self.aliases else self.load()

    def _load_flat(self, options: LoadOptions) -> dict[str, Any]:
        only = options.only
        if only is None and not self.aliases:
            names: Iterable[str] = self
        else:
            names = list(self) if only is None else chosen_names(self, selectors_of(only))
            self._refuse_nothing(bool(names), only)
        library = options.framework or self._library or DEFAULT_FRAMEWORK
        return self._load_named(dict.fromkeys(names, library), options)

    def _load_nested(self, options: LoadOptions) -> Any:
        only, ties, framework = options.only, options.ties, options.framework
        classes = classes_by_name(options.classes)
        tree = self._tree if only is None else self._part(only)
        library = framework or self._library or DEFAULT_FRAMEWORK
        parts = part_libraries(tree) if self._may_have_parts else {}
        frameworks = {
            name: parts.get(name) or framework or members.get("library") or library
            for name, _, members in tensor_names(tree)
        }
        self._refuse_stale(frameworks, is_whole=only is None)
        if options.uses_device:
            refuse_unused_device(set(frameworks.values()), options.device)
        tensors = self._load_named(frameworks, options)
        attributed = WithAttributes(tensors, frameworks, self.aliases if ties == "share" else {})

        def find_class(name: str) -> type | None:
            return classes.get(name) or known_class(name)

        return decode_tree(
            tree,
            tensor=attributed.tensor,
            compose=lambda composed: decode_object(composed, device=options.device, find_class=find_class),
            find_class=find_class,
            content=tensors.__getitem__,
        )

    def _refuse_stale(self, names: Collection[str], *, is_whole: bool) -> None:
        """Refuse a tree whose tensors are not those in the file: another program changed the file."""
        missing = next((name for name in names if name not in self), None)
        added = next((name for name in self if name not in names), None) if is_whole else None
        name = missing if missing is not None else added
        if name is not None:
            has, lacks = ("the saved state", "the file") if missing is not None else ("the file", "the saved state")
            raise FormatError(
                f"{has} has a tensor `{name}`, and {lacks} does not",
                path=self.path,
                tensor=name,
                hint="Another program changed the file: tensorkeep.open(path, check=False).load() reads all by name",
            )

    @property
    def _may_have_parts(self) -> bool:
        """Whether tensors may be parts of other values; most states have none and need no walk to find them."""
        text = bytes(self.state.tree) if self.state else b""
        return b'["composed"' in text or b'["byte' in text or b"\\" in text

    def _part(self, only: Selector | Iterable[Selector]) -> Any:
        """Return the nodes of the selected part."""
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

    def _load_whole(self, framework: str, options: LoadOptions) -> dict[str, Any]:
        """Read all tensors of files in which none share memory."""
        return load_tied(self, dict.fromkeys(self, framework), {}, self.stored, options)

    def _load_named(self, frameworks: Mapping[str, str], options: LoadOptions) -> dict[str, Any]:
        libraries = set(frameworks.values())
        for framework in libraries:
            if find_library(framework) is None:
                raise UnsupportedError(
                    f"a tensor was saved from {framework!r}, an unknown array library",
                    path=self.path,
                    expected=" or ".join(LIBRARIES),
                    hint='framework="numpy" gives NumPy arrays',
                )
        is_all = len(frameworks) == len(self) and all(name in self for name in frameworks)
        if is_all and len(libraries) == 1 and not self.aliases:
            return self._load_whole(libraries.pop(), options)
        wanted = {name: self[name] for name in frameworks}
        return load_tied(wanted, frameworks, self.aliases, self.stored, options, is_part=not is_all)


_Only: TypeAlias = Selector | Iterable[Selector] | None
