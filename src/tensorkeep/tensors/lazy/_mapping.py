"""Lazy tensors by name, and views of them: selected, renamed, cast. Making a view reads nothing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from tensorkeep.collector import PausedCollector
from tensorkeep.errors import TensorNotFoundError
from tensorkeep.formats.safetensors import State
from tensorkeep.parallel import Progress
from tensorkeep.phrases import counted
from tensorkeep.tensors.lazy._html import ShownTensors
from tensorkeep.tensors.lazy._lazy import LazyTensor
from tensorkeep.tensors.lazy._name_patterns import Renaming, Selector, changed_names, chosen_names, did_you_mean
from tensorkeep.tensors.lazy._renamed_state import parts_in, renamed_state
from tensorkeep.tensors.lazy._together import load_parts_together, load_with_progress, plan_together
from tensorkeep.tensors.readers import ReadPlan, cast_target

_N_IN_REPR = 3


class LazyTensors(ShownTensors):
    """Lazy tensors by name: what open files, checkpoints of many files, and views of them have in common.

    A read-only mapping of name to `LazyTensor`. `load` reads whole tensors, `load_parts` slices of several; `select`,
    `drop`, `rename` and `cast` return views, which read nothing, can be viewed again, and can be saved:

        with tensorkeep.open("checkpoint/") as tensors:
            encoder = tensors.select("encoder.*").strip_prefix("encoder.").cast("bf16")
            tensorkeep.save(encoder, "encoder.safetensors")

    Two of them are equal only if they are the same object.
    """

    @property
    @abstractmethod
    def path(self) -> str:
        """The path or URL; for what has none, such as bytes, a name for error messages."""

    @property
    @abstractmethod
    def has_metadata(self) -> bool:
        """Whether there is metadata at all, even if empty."""

    @property
    @abstractmethod
    def metadata(self) -> dict[str, str]:
        """The metadata: free text by key. A new dict, empty if there is none."""

    @property
    def state(self) -> State | None:
        """What the files say of the nested state that the tensors are parts of; None if they say nothing."""
        return None

    @abstractmethod
    def _find(self, name: str) -> LazyTensor | None:
        """Return the tensor of that name; None if there is none."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(lazy.nbytes for lazy in self.values())

    @property
    def n_elements(self) -> int:
        """Elements of all tensors."""
        return sum(lazy.n_elements for lazy in self.values())

    def __getitem__(self, name: str) -> LazyTensor:
        """Return a tensor, which is read when it is indexed.

        Raises:
            TensorNotFoundError: If there is no tensor of that name (also a KeyError).
        """
        found = self._find(name)
        if found is None:
            message, hint = f"File does not contain tensor {name}", self._hint_for(str(name))
            raise TensorNotFoundError(message, path=self.path, tensor=str(name), hint=hint)
        return found

    def _hint_for(self, name: str) -> str | None:
        return did_you_mean(name, self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """Return a tensor, which is read when it is indexed.

        Args:
            name: Its name.
            default: What to return if there is no tensor of that name.
        """
        return self[name] if name in self else default  # noqa: SIM401 - this is what it would call

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def load(self, names: Iterable[str] | None = None, *, progress: Progress | None = None) -> dict[str, Any]:
        """Read whole tensors, without a copy if the file is mapped and nothing is cast.

        Args:
            names: Which: several names, or one; all if None.
            progress: Called with the bytes loaded so far and the total, after each batch of at least one tensor; for
                mapped files, which are read when they are used, after each batch is mapped.

        Returns:
            Name to tensor of the framework, in the order of this mapping. The tensors are writable, writing to them
            never reaches a file, and no two share memory.

        Raises:
            TensorNotFoundError: If there is no tensor of a name (also a KeyError).
            DtypeError: If a dtype is unknown here or to the framework.
            IntegrityError: If the file was opened with `verify=True` and bytes do not have their digest.
            LimitError: If a tensor has more dimensions than the framework allows, or an expanded view would take far
                more memory than it takes in the file.
            TransportError: If the bytes cannot be read.
        """
        if names is None:
            return load_with_progress(self._all(), progress)
        asked = {name: self[name] for name in ([names] if isinstance(names, str) else names)}
        in_order = [name for name in self if name in asked] if len(asked) > 1 else list(asked)
        return load_with_progress({name: asked[name] for name in in_order}, progress)

    def load_parts(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Read parts of tensors in parallel, which is faster where each request has latency.

            checkpoint.load_parts({"embedding.weight": np.s_[:1000], "norm.weight": ...})

        Args:
            parts: Name to index, as `LazyTensor` takes it; `...` for all of it.

        Returns:
            Name to tensor of the framework, in the order of `parts`.

        Raises:
            TensorNotFoundError: If there is no tensor of a name (also a KeyError).
            SelectionError: If an index does not fit the shape (also an IndexError).
            DtypeError: If a dtype is unknown here or to the framework.
            LimitError: If a tensor has more dimensions than the framework allows.
            TransportError: If the bytes cannot be read.
        """
        return load_parts_together({name: (self[name], index) for name, index in parts.items()})

    def shard(self, name: str, dim: int, rank: int, world: int) -> Any:
        """Read one rank's part of a tensor, cut as `torch.chunk` and DTensor's `Shard` cut it.

        Args:
            name: The tensor's name.
            dim: The dimension that is cut; negative ones count from the last.
            rank: The rank, 0 <= rank < world.
            world: The number of ranks.

        Returns:
            A tensor of the framework; see `LazyTensor.shard`.

        Raises:
            TensorNotFoundError: If there is no tensor of that name (also a KeyError).
            SelectionError: If there is no such dimension or rank (also an IndexError).
            DtypeError: If the dtype is unknown here or to the framework.
            LimitError: If the tensor has more dimensions than the framework allows.
            TransportError: If the bytes cannot be read.
        """
        return self[name].shard(dim, rank, world)

    def plan(self, what: Iterable[str] | Mapping[str, Any] | None = None) -> ReadPlan:
        """Return what a read would cost, without reading.

            print(checkpoint.plan())  # 12 requests, 4,812,672 bytes for 4,812,672 that are wanted
            checkpoint.plan({"embedding.weight": np.s_[:10], "norm.weight": ...})

        Args:
            what: Names of tensors to read whole, or name to index for parts; all tensors if None.

        Returns:
            The requests, their bytes, and the bytes that are wanted.

        Raises:
            TensorNotFoundError: If there is no tensor of a name (also a KeyError).
            SelectionError: If an index does not fit the shape (also an IndexError).
            DtypeError: If a dtype is unknown here.
        """
        if isinstance(what, Mapping):
            return plan_together([], [(self[name], index) for name, index in what.items()])
        names = self if what is None else [what] if isinstance(what, str) else what
        return plan_together([self[name] for name in names], [])

    def select(self, *selectors: Selector) -> TensorView:
        """Return a view with only some tensors.

            tensors.select("encoder.*", "*.bias", lambda name: "norm" in name)

        Args:
            *selectors: Shell patterns that match whole names (`*` also matches dots; case matters), or functions that
                take a name and return whether to select it. A name that any of them selects is in.

        Returns:
            The view, in the order of this mapping.

        Raises:
            TensorNotFoundError: If nothing is selected (also a KeyError).
            TypeError: If a selector is neither a pattern nor a function.
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
        """Return a view without some tensors. That nothing is dropped is not an error.

        Args:
            *selectors: Patterns or functions, as for `select`.

        Returns:
            The view, in the order of this mapping.

        Raises:
            TypeError: If a selector is neither a pattern nor a function.
        """
        dropped = set(chosen_names(self, selectors))
        return self._view({name: self[name] for name in self if name not in dropped}, None if dropped else self.state)

    def rename(self, renaming: Renaming) -> TensorView:
        """Return a view with other names. A saved state is renamed with its tensors.

            tensors.rename({"wte.weight": "embedding.weight"})
            tensors.rename(lambda name: name.replace("gamma", "weight"))

        Args:
            renaming: A mapping of old name to new, for the names that change; or a function that takes every name and
                returns the new one.

        Returns:
            The view, in the order of this mapping.

        Raises:
            TensorNotFoundError: If the mapping has a name that is not here (also a KeyError).
            RefusedError: If two tensors would get the same name; the message names both.
            HeaderError: If a new name has no UTF-8 form.
            TypeError: If a new name is not text.
        """
        changed = changed_names(self, renaming)
        return self._view({new: self[old] for old, new in changed.items()}, renamed_state(self.state, changed))

    def strip_prefix(self, prefix: str) -> TensorView:
        """Return a view with a prefix removed from the names that have it; other names stay.

        Args:
            prefix: Such as `"model."`.

        Returns:
            The view, in the order of this mapping.

        Raises:
            TensorNotFoundError: If no name has the prefix (also a KeyError).
            RefusedError: If two tensors would get the same name; the message names both.
        """
        if not any(name.startswith(prefix) for name in self):
            raise TensorNotFoundError(
                f"no name begins with {prefix!r}",
                path=self.path,
                found=", ".join(f"`{name}`" for name in islice(self, _N_IN_REPR)) or "no tensors",
            )
        return self.rename(lambda name: name.removeprefix(prefix))

    def add_prefix(self, prefix: str) -> TensorView:
        """Return a view with a prefix before every name.

        Args:
            prefix: Such as `"model."`.

        Returns:
            The view, in the order of this mapping.
        """
        return self.rename(lambda name: prefix + name)

    def cast(self, dtype: Any) -> TensorView:
        """Return a view with floating-point tensors converted when they are read.

        Integers, booleans, complex numbers and tensors of unknown dtypes stay as they are. So do the parts of
        objects that several tensors make up, such as the values and indices of a sparse tensor.

        Args:
            dtype: The dtype to convert to, such as `"bf16"`; see `LazyTensor.cast`.

        Returns:
            The view, in the order of this mapping.

        Raises:
            DtypeError: If there is no such dtype, or nothing can be cast to it.
        """
        target = cast_target(dtype)
        parts = {} if self.state is None else parts_in(self.state)
        return self._each(lambda name, one: one.cast(target) if one.is_floating_point and name not in parts else one)

    def dequantize(self, dtype: Any = "bf16") -> TensorView:
        """Return a view with quantized tensors as numbers, computed when they are read; others stay as they are.

        Args:
            dtype: The dtype of the numbers, such as `"bf16"`; see `LazyTensor.dequantize`.

        Raises:
            DtypeError: If there is no such dtype, or the type of a tensor has no numbers of its own.
        """
        return self._each(lambda _, lazy: lazy.dequantize(dtype) if lazy.is_quantized else lazy)

    def _each(self, changed: Callable[[str, LazyTensor], LazyTensor]) -> TensorView:
        with PausedCollector():
            return self._view({name: changed(name, lazy) for name, lazy in self.items()}, self.state)

    def _flat_state(self) -> State | None:
        """Return the state without its tree, for tensors that are no longer parts of it."""
        return State(library=self.state.library) if self.state and self.state.library is not None else None

    def _all(self) -> dict[str, LazyTensor]:
        with PausedCollector():
            return dict(self.items())

    def _view(self, tensors: Mapping[str, LazyTensor], state: State | None = None) -> TensorView:
        metadata = self.metadata if self.has_metadata else None
        return TensorView(tensors, path=self.path, metadata=metadata, state=state)


class TensorView(LazyTensors):
    """Lazy tensors of any files under any names, such as `select`, `rename` and `cast` return.

    It can be made of any lazy tensors, to combine files:

        view = TensorView({"a": file["x"], "b": other["y"]}, path="a and b")
        tensorkeep.save(view, "both.safetensors")

    Threads can share it, and it can be pickled, if that is true of the files.

    Args:
        tensors: Name to lazy tensor; each gets the name that it has here.
        path: A name for the whole, for error messages.
        metadata: Free text by key; None for none at all.
        state: What to say of the nested state that the tensors are all parts of.
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
        """The path or URL of the files, or a name for error messages."""
        return self._path

    @property
    def has_metadata(self) -> bool:
        """Whether there is metadata at all, even if empty."""
        return self._metadata is not None

    @property
    def state(self) -> State | None:
        """What the files say of the nested state that the tensors are parts of, with the names here."""
        return self._state

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the files: free text by key. A new dict, empty if there is none."""
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
