"""Lazy tensors by name, and views of them: fewer, under other names, of other dtypes. Nothing is read for any."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from tensorkeep.collector import PausedCollector
from tensorkeep.errors import TensorNotFoundError
from tensorkeep.formats.safetensors import State
from tensorkeep.phrases import counted
from tensorkeep.tensors.lazy._lazy import LazyTensor, load_parts_together, load_together, plan_together
from tensorkeep.tensors.lazy._name_patterns import Renaming, Selector, changed_names, chosen_names, did_you_mean
from tensorkeep.tensors.lazy._renamed_state import parts_in, renamed_state
from tensorkeep.tensors.readers import ReadPlan, cast_target

_N_IN_REPR = 3


class LazyTensors(Mapping[str, LazyTensor]):
    """Name to `LazyTensor`: what a file, a checkpoint of several files and every view of them have in common.

    Views can be taken of views, and saved like any mapping of tensors:

        file.select("encoder.*").strip_prefix("encoder.").cast("bf16")
    """

    @property
    @abstractmethod
    def path(self) -> str:
        """The path, or what stands for it in messages."""

    @property
    @abstractmethod
    def has_metadata(self) -> bool:
        """Whether there is free text at all, be it empty."""

    @property
    @abstractmethod
    def metadata(self) -> dict[str, str]:
        """Free text by key; a new dict, empty where there is none."""

    @property
    def state(self) -> State | None:
        """What is said of the nested value that these are the tensors of; None where nothing is."""
        return None

    @abstractmethod
    def _find(self, name: str) -> LazyTensor | None:
        """Return the tensor of that name, or None where there is none."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(lazy.nbytes for lazy in self.values())

    @property
    def n_elements(self) -> int:
        """Elements of all tensors."""
        return sum(lazy.n_elements for lazy in self.values())

    def __getitem__(self, name: str) -> LazyTensor:
        """Return a tensor that reads on indexing."""
        found = self._find(name)
        if found is None:
            raise TensorNotFoundError(
                f"File does not contain tensor {name}",
                path=self.path,
                tensor=str(name),
                hint=did_you_mean(str(name), self),
            )
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """Return a tensor that reads on indexing, or something else where there is none of that name.

        Args:
            name: Its name.
            default: What to return instead.
        """
        return self[name] if name in self else default  # noqa: SIM401 - this is what it would call

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def load(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Read whole tensors, without a copy where a file can be mapped and nothing is cast.

        Args:
            names: Which: several, or one; all if None.

        Returns:
            Name to tensor of the framework, in the order of this mapping. They are writable, share memory with no
            other, and writing to them never reaches a file.

        Raises:
            TensorNotFoundError: If there is none of a name.
            DtypeError: If a dtype is unknown here or to the framework.
            LimitError: If a tensor has more dimensions than the framework allows.
            TransportError: If the bytes cannot be read.
        """
        if names is None:
            return load_together(self._all())
        asked = {name: self[name] for name in ([names] if isinstance(names, str) else names)}
        in_order = [name for name in self if name in asked] if len(asked) > 1 else list(asked)
        return load_together({name: asked[name] for name in in_order})

    def load_parts(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Read parts of tensors side by side, which counts where each request takes its time.

            checkpoint.load_parts({"embedding.weight": np.s_[:1000], "norm.weight": ...})

        Args:
            parts: Name to index, as `LazyTensor` takes it.

        Returns:
            Name to tensor of the framework, in the same order.

        Raises:
            TensorNotFoundError: If there is none of a name.
            SelectionError: If an index does not fit its shape.
            DtypeError: If a dtype is unknown here or to the framework.
            TransportError: If the bytes cannot be read.
        """
        return load_parts_together({name: (self[name], index) for name, index in parts.items()})

    def shard(self, name: str, dim: int, rank: int, world: int) -> Any:
        """Read what one of several ranks has of a tensor; see `LazyTensor.shard`.

        Args:
            name: The tensor.
            dim: The dimension that is cut.
            rank: Which rank, from 0.
            world: How many ranks.

        Raises:
            TensorNotFoundError: If there is none of that name.
            SelectionError: If there is no such dimension or rank.
            DtypeError: If the dtype is unknown here or to the framework.
            TransportError: If the bytes cannot be read.
        """
        return self[name].shard(dim, rank, world)

    def plan(self, what: Iterable[str] | Mapping[str, Any] | None = None) -> ReadPlan:
        """Return what a read would cost, without making it.

            checkpoint.plan()  # of load()
            checkpoint.plan({"embedding.weight": np.s_[:10], "norm.weight": ...})  # of reading these parts

        Args:
            what: Names of tensors that are read whole; or name to the index of what is read; all tensors if None.

        Raises:
            TensorNotFoundError: If there is none of a name.
            SelectionError: If an index does not fit its shape.
            DtypeError: If a dtype is unknown here.
        """
        if isinstance(what, Mapping):
            return plan_together([], [(self[name], index) for name, index in what.items()])
        names = self if what is None else [what] if isinstance(what, str) else what
        return plan_together([self[name] for name in names], [])

    def select(self, *selectors: Selector) -> TensorView:
        """Return a view of some tensors.

        Args:
            *selectors: Shell patterns for whole names (`*` crosses dots, case matters), or functions of a name that
                say whether it is wanted; one of them is enough.

        Returns:
            The view, in the order of this mapping.

        Raises:
            TensorNotFoundError: If no tensor is chosen.
            TypeError: If a selector is neither.
        """
        chosen = chosen_names(self, selectors)
        if not chosen:
            texts = [selector for selector in selectors if isinstance(selector, str)]
            raise TensorNotFoundError(
                "no tensor is chosen",
                path=self.path,
                expected="a name that matches " + (" or ".join(map(repr, selectors)) or "a pattern"),
                hint=did_you_mean(texts[0], self) if texts else None,
            )
        return self._view({name: self[name] for name in chosen}, self._flat_state())

    def drop(self, *selectors: Selector) -> TensorView:
        """Return a view without some tensors; it is no error if there are none of them.

        Args:
            *selectors: As for `select`.

        Returns:
            The view, in the order of this mapping.

        Raises:
            TypeError: If a selector is neither a pattern nor a function.
        """
        dropped = set(chosen_names(self, selectors))
        return self._view({name: self[name] for name in self if name not in dropped}, None if dropped else self.state)

    def rename(self, renaming: Renaming) -> TensorView:
        """Return a view under other names.

        Args:
            renaming: Old name to new, for those that change; or a function that gives the new name of each.

        Returns:
            The view, in the order of this mapping.

        Raises:
            TensorNotFoundError: If there is none of a name in the mapping.
            RefusedError: If two tensors would have one name; the message has both.
            TypeError: If a new name is not text.
        """
        changed = changed_names(self, renaming)
        return self._view({new: self[old] for old, new in changed.items()}, renamed_state(self.state, changed))

    def strip_prefix(self, prefix: str) -> TensorView:
        """Return a view in which names have lost a prefix; those without it stay as they are.

        Args:
            prefix: Such as `"model."`.

        Returns:
            The view, in the order of this mapping.

        Raises:
            TensorNotFoundError: If no name begins so.
            RefusedError: If two tensors would have one name; the message has both.
        """
        if not any(name.startswith(prefix) for name in self):
            raise TensorNotFoundError(
                f"no name begins with {prefix!r}",
                path=self.path,
                found=", ".join(f"`{name}`" for name in islice(self, _N_IN_REPR)) or "no tensors",
            )
        return self.rename(lambda name: name.removeprefix(prefix))

    def add_prefix(self, prefix: str) -> TensorView:
        """Return a view in which every name begins with a prefix.

        Args:
            prefix: Such as `"model."`.

        Returns:
            The view, in the order of this mapping.
        """
        return self.rename(lambda name: prefix + name)

    def cast(self, dtype: Any) -> TensorView:
        """Return a view in which floating-point tensors are converted when they are read.

        Integers, booleans, complex numbers and dtypes that this version does not know stay as they are, and so do
        the parts of values that are made of several tensors.

        Args:
            dtype: What to convert to; see `LazyTensor.cast`.

        Returns:
            The view, in the order of this mapping.

        Raises:
            DtypeError: If there is no such dtype, or it is no floating-point dtype.
        """
        target = cast_target(dtype)
        parts = {} if self.state is None else parts_in(self.state)
        with PausedCollector():
            return self._view(
                {
                    name: lazy.cast(target) if lazy.is_floating_point and name not in parts else lazy
                    for name, lazy in self.items()
                },
                self.state,
            )

    def _flat_state(self) -> State | None:
        """Return what is said of tensors that are no longer parts of anything: the library that they came from."""
        library = self.state.library if self.state else None
        return None if library is None else State(library=library)

    def _all(self) -> dict[str, LazyTensor]:
        with PausedCollector():
            return dict(self.items())

    def _view(self, tensors: Mapping[str, LazyTensor], state: State | None = None) -> TensorView:
        metadata = self.metadata if self.has_metadata else None
        return TensorView(tensors, path=self.path, metadata=metadata, state=state)


class TensorView(LazyTensors):
    """Lazy tensors of any files under any names; it pickles, and threads may share it, where their files do.

    Args:
        tensors: Name to lazy tensor; each is known by the name it has here.
        path: What stands for the whole in messages.
        metadata: Free text by key, or None where there is none at all.
        state: What is said of the nested value that these are all tensors of.
    """

    def __init__(
        self,
        tensors: Mapping[str, LazyTensor],
        *,
        path: str,
        metadata: Mapping[str, str] | None = None,
        state: State | None = None,
    ) -> None:
        self._tensors = {name: lazy if lazy.name == name else lazy.renamed(name) for name, lazy in tensors.items()}
        self._path = path
        self._metadata = None if metadata is None else dict(metadata)
        self._state = None if state is None else State(library=state.library, tree=state.tree)

    @property
    def path(self) -> str:
        """The path of what this is a view of, or what stands for it in messages."""
        return self._path

    @property
    def has_metadata(self) -> bool:
        """Whether there is free text at all, be it empty."""
        return self._metadata is not None

    @property
    def state(self) -> State | None:
        """What is said of the nested value that these are the tensors of, under the names that they have here."""
        return self._state

    @property
    def metadata(self) -> dict[str, str]:
        """The free text of what this is a view of, by key; a new dict, empty where there is none."""
        return dict(self._metadata or {})

    def _find(self, name: str) -> LazyTensor | None:
        return self._tensors.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        first = [f"{lazy.name} {lazy.dtype} {list(lazy.shape)}" for lazy in islice(self.values(), _N_IN_REPR)]
        listed = ", ".join([*first, "…"] if len(self) > len(first) else first)
        return f"TensorView({self.path!r}, {counted(len(self), 'tensor')}, {self.nbytes:,} bytes: {listed or 'none'})"
