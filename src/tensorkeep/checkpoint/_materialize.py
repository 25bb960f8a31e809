"""Nested data with lazy tensors in it, and the same with tensors."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, Final

from tensorkeep.arrays import EncodedObject, codec_for, decode_object, known_class, library_for, plain_library
from tensorkeep.collector import PausedCollector
from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats.pickles import CompositeRecord, Unknown
from tensorkeep.parallel import Progress
from tensorkeep.state import Classes, NamedData, classes_by_name, rebuilt
from tensorkeep.tensors import LazyTensor, LazyTensors, load_sharing


def materialize(value: Any, *, classes: Classes = (), progress: Progress | None = None) -> Any:
    """Read all lazy tensors in nested data, together: a subtree of `tree`, or any containers with lazy tensors.

    Args:
        value: A lazy tensor, a mapping of name to lazy tensor, or nested data of an open file's `tree`, whole or in
            part, also from several files. The files must be open.
        classes: Dataclasses, enums and named tuples that may be rebuilt, as classes or as a mapping of name to
            class. Others stay `NamedData`.
        progress: Called with the bytes loaded so far and the total.

    Returns:
        The same data with tensors of the framework and on the device that each file was opened for. Tensors that
        share bytes of a file share memory, and an object in several places stays one. Containers are new; objects of
        other classes than those in a `tree` stay as they are.

    Raises:
        DtypeError: If tensorkeep or the framework does not know a dtype.
        FormatError: If the parts of a sparse, quantized or nested tensor do not fit together, or a class is not the
            one that was saved.
        IntegrityError: If tensors are verified and one does not match its digest.
        LimitError: If the data are nested too deeply, a tensor has more dimensions than the framework allows, or
            copies of tensors would take far more memory than what they share.
        TransportError: If the bytes cannot be read, or a file is closed.

    Examples:
        >>> tensorkeep.save({"model": {"weight": numpy.eye(2)}, "step": 5}, "s.safetensors")
        >>> with tensorkeep.open("s.safetensors") as file:
        ...     model = tensorkeep.materialize(file.tree["model"])
        >>> model["weight"].shape
        (2, 2)
    """
    allowed = classes_by_name(classes)
    with PausedCollector():
        lazies = _LazyTensorsIn(value)
        named = _by_name(lazies.found)
        loaded = load_sharing(named, progress)
        tensors = {id(lazy): loaded[name] for name, lazy in named.items()}
        try:
            return _Copier(tensors, lazies.expanded, allowed).copy(value)
        except RecursionError:
            raise LimitError("the data are nested too deeply", hint="Pass a smaller part") from None


def _by_name(lazies: list[LazyTensor]) -> dict[str, LazyTensor]:
    """Return tensors by the names that errors say; by numbers if files have the same names."""
    by_name = {lazy.name: lazy for lazy in lazies}
    return by_name if len(by_name) == len(lazies) else {str(place): lazy for place, lazy in enumerate(lazies)}


class _LazyTensorsIn:
    """The lazy tensors in a value.

    Attributes:
        found: Each of them once, in order.
        expanded: Identity of each mapping of lazy tensors to a dict of them, which makes them only once.
    """

    def __init__(self, value: Any) -> None:
        self.found: list[LazyTensor] = []
        self.expanded: dict[int, dict[str, LazyTensor]] = {}
        seen: set[int] = set()
        waiting = [value]
        while waiting:
            node = waiting.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, LazyTensors):
                self.expanded[id(node)] = node = dict(node.items())
            if type(node) is LazyTensor:
                self.found.append(node)
            else:
                waiting.extend(reversed([*_contents(node)]))


def _contents(node: Any) -> Iterable[Any]:
    """Return what a container holds."""
    kind = type(node)
    if kind is OrderedDict:
        return [*node.values(), *vars(node).values()]
    if kind in {dict, Counter, defaultdict}:
        return list(node.values())
    if kind in {list, tuple, deque}:
        return list(node)
    attributes: tuple[str, ...] = _PARTS.get(kind, ())
    return list(vars(node).values()) if kind in _NAMESPACES else [getattr(node, part) for part in attributes]


_NAMESPACES: Final = frozenset({Namespace, SimpleNamespace})

_PARTS: Final[dict[type, tuple[str, ...]]] = {
    NamedData: ("fields",),
    EncodedObject: ("parts", "settings"),
    CompositeRecord: ("parts",),
    Unknown: ("args", "state", "items"),
}
"""Class to the attributes that may hold tensors."""

_EMPTY: Final[dict[type, Callable[[Any], Any]]] = {
    dict: lambda _: {},
    OrderedDict: lambda _: OrderedDict(),
    Counter: lambda _: Counter(),
    defaultdict: lambda node: defaultdict(node.default_factory),
    list: lambda _: [],
    deque: lambda node: deque(maxlen=node.maxlen),
    Namespace: lambda _: Namespace(),
    SimpleNamespace: lambda _: SimpleNamespace(),
    Unknown: lambda node: Unknown(node.module, node.name),
}
"""Class of each container that is created empty and then filled, to a function that creates it."""


class _Copier:
    """Copies each value once, with tensors in place of lazy ones."""

    def __init__(
        self,
        tensors: Mapping[int, Any],
        expanded: Mapping[int, Mapping[str, LazyTensor]],
        classes: Mapping[str, type],
    ) -> None:
        self._tensors = tensors
        self._expanded = expanded
        self._classes = classes
        self._made: dict[int, Any] = {}
        self._ordered: dict[Any, Any] = {}

    def copy(self, node: Any) -> Any:
        """Return the copy of a value."""
        node = self._expanded.get(id(node), node)
        if id(node) in self._made:
            return self._made[id(node)]
        begin = _EMPTY.get(type(node))
        if begin is not None:
            made = self._made[id(node)] = begin(node)
            self._fill(made, node)
        else:
            made = self._made[id(node)] = self._whole(node)
        return made

    def _fill(self, made: Any, node: Any) -> None:
        if type(node) is Unknown:
            for part in _PARTS[Unknown]:
                object.__setattr__(made, part, self.copy(getattr(node, part)))
        elif isinstance(made, dict):
            for key, child in node.items():
                made[key] = self.copy(child)
            if type(made) is OrderedDict:
                self._set_attributes(made, node)
        elif type(made) in _NAMESPACES:
            self._set_attributes(made, node)
        else:
            for child in node:
                made.append(self.copy(child))

    def _set_attributes(self, made: Any, node: Any) -> None:
        for name, child in vars(node).items():
            vars(made)[name] = self.copy(child)

    def _whole(self, node: Any) -> Any:
        """Return the copy of a value that is made when its contents are."""
        kind = type(node)
        if kind is LazyTensor:
            return self._attributed(node)
        if kind is tuple:
            items = []
            for child in node:
                items.append(self.copy(child))  # noqa: PERF401 - no deeper stack
            return tuple(items)
        if kind is NamedData:
            data = NamedData(node.kind, node.class_name, self.copy(node.fields))
            found = self._find_class(node.class_name)
            return data if found is None else rebuilt(data, found)
        if kind is EncodedObject:
            encoded = EncodedObject(node.library, node.kind, self.copy(node.parts), self.copy(node.settings))
            return decode_object(encoded, find_class=self._find_class)
        if kind is CompositeRecord:
            return self._composed(node)
        return node

    def _find_class(self, name: str) -> type | None:
        return self._classes.get(name) or known_class(name)

    def _composed(self, node: CompositeRecord) -> Any:
        parts = self.copy(node.parts)
        library = next((found for part in parts.values() if (found := plain_library(part))), None)
        tensor = None if library is None else codec_for(library).composed(node.kind, parts, node.settings)
        return CompositeRecord(node.kind, parts, node.settings) if tensor is None else tensor

    def _attributed(self, lazy: LazyTensor) -> Any:
        """Return a tensor with what its library kept beside the elements."""
        tensor = self._tensors[id(lazy)]
        library = plain_library(tensor) if lazy.marks else None
        if library is None:
            return tensor
        kept = {key: mark for key, mark in lazy.marks.items() if key in library_for(library).attributes}
        codec = codec_for(library)
        if "order" in kept:
            # Reordering copies. All names of the tensor get views of one copy, so that they still share memory.
            place, order = (lazy.reader, lazy.entry), {"order": kept.pop("order")}
            if place not in self._ordered:
                self._ordered[place] = codec.with_attributes(tensor, order)
            tensor = self._ordered[place][...]
        try:
            return codec.with_attributes(tensor, kept) if kept else tensor
        except FormatError as error:
            raise error.with_fields(tensor=lazy.name) from None
