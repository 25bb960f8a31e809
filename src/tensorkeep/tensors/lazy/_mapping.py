"""Lazy tensors by name, and views of them: selected, renamed, cast, computed. Making a view reads nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from tensorkeep.arrays import ArrayT
from tensorkeep.collector import PausedCollector
from tensorkeep.encryption import Encryption
from tensorkeep.errors import TensorNotFoundError
from tensorkeep.formats.safetensors import State
from tensorkeep.tensors.lazy._computed import Scope, computed_tensor
from tensorkeep.tensors.lazy._lazy import LazyTensor
from tensorkeep.tensors.lazy._name_patterns import (
    Renaming,
    Selector,
    changed_names,
    chosen_names,
    nothing_chosen,
)
from tensorkeep.tensors.lazy._named import NamedTensors
from tensorkeep.tensors.lazy._renamed_state import parts_in, renamed_state
from tensorkeep.tensors.readers import Reader, cast_target
from tensorkeep.tensors.to_device import devices_of
from tensorkeep.texts import counted

_N_IN_REPR = 3


class LazyTensors(NamedTensors[ArrayT]):
    """Lazy tensors by name: what open files, checkpoints of many files, and views of them have in common.

    A read-only mapping of name to `LazyTensor`. `load` reads whole tensors, `load_parts` slices of several; `select`,
    `drop`, `rename` and `cast` return views, which read nothing, can be viewed again, and can be saved:

        with tensorkeep.open("checkpoint/") as tensors:
            encoder = tensors.select("encoder.*").strip_prefix("encoder.").cast("bf16")
            tensorkeep.save(encoder, "encoder.safetensors")

    Two of them are equal only if they are the same object.
    """

    def select(self, *selectors: Selector) -> TensorView[ArrayT]:
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
                hint=self._hint_for(texts[0]) if texts else None,
            )
        return self._view({name: self[name] for name in chosen}, self._flat_state())

    def drop(self, *selectors: Selector) -> TensorView[ArrayT]:
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

    def rename(self, renaming: Renaming) -> TensorView[ArrayT]:
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
        changed = changed_names(self, renaming, self.path)
        return self._view({new: self[old] for old, new in changed.items()}, renamed_state(self.state, changed))

    def strip_prefix(self, prefix: str) -> TensorView[ArrayT]:
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

    def add_prefix(self, prefix: str) -> TensorView[ArrayT]:
        """Return a view with a prefix before every name.

        Args:
            prefix: Such as `"model."`.

        Returns:
            The view, in the order of this mapping.
        """
        return self.rename(lambda name: prefix + name)

    def cast(self, dtype: Any, *, seed: int | None = None) -> TensorView[ArrayT]:
        """Return a view with floating-point tensors converted when they are read.

        Integers, booleans, complex numbers and tensors of unknown dtypes stay as they are. So do the parts of
        objects that several tensors make up, such as the values and indices of a sparse tensor.

        Args:
            dtype: The dtype to convert to, such as `"bf16"`; see `LazyTensor.cast`.
            seed: Rounds at random by this seed instead of to nearest; see `LazyTensor.cast`.

        Returns:
            The view, in the order of this mapping.

        Raises:
            DtypeError: If there is no such dtype, or nothing can be cast to it.
            TypeError: If `seed` is not an integer.
        """
        target = cast_target(dtype)
        parts = {} if self.state is None else parts_in(self.state)
        return self._each(
            lambda name, one: one.cast(target, seed=seed) if one.is_floating_point and name not in parts else one
        )

    def on_devices(self, device_map: Mapping[str, Any], framework: str = "torch") -> TensorView:
        """Return a view whose tensors go to several devices.

            tensors.on_devices({"model.layers.0": 0, "model.layers.1": 1, "": "cpu"}).load()

        Args:
            device_map: The device of each tensor, by its name or by the name of a module that it is in, as
                transformers and accelerate spell them. The longest name decides, and `""` is for all others. Names
                that no tensor has are ignored.
            framework: The array library; devices are in its own terms.

        Returns:
            The view, in the order of this mapping.

        Raises:
            DeviceError: If a tensor has no device; the message lists them.
            TypeError: If `device_map` is not a dict of names.
            UnsupportedError: If there is no such library.
        """
        devices = devices_of(self, device_map)
        readers: dict[tuple[Reader, str], Reader] = {}

        def placed(name: str, lazy: LazyTensor[ArrayT]) -> LazyTensor[Any]:
            key = (lazy.reader, str(devices[name]))
            if key not in readers:
                readers[key] = lazy.reader.with_framework(framework, devices[name])
            return LazyTensor(name, lazy.entry, readers[key], library=lazy.library, marks=lazy.marks)

        return self._each(placed)

    def dequantize(self, dtype: Any = "bf16") -> TensorView[ArrayT]:
        """Return a view with quantized tensors as numbers, computed when they are read; others stay as they are.

        Args:
            dtype: The dtype of the numbers, such as `"bf16"`; see `LazyTensor.dequantize`.

        Raises:
            DtypeError: If there is no such dtype, or the type of a tensor has no numbers of its own.
        """
        return self._each(lambda _, lazy: lazy.dequantize(dtype) if lazy.is_quantized else lazy)

    def map(
        self,
        compute: Callable[..., Any],
        *selectors: Selector,
        scope: Scope = "tensor",
        dtype: Any = None,
        shape: tuple[int, ...] | None = None,
        framework: str | None = None,
    ) -> TensorView[ArrayT]:
        """Return a view with tensors that a function computes when they are read; others stay as they are.

            tensors.map(lambda weight: weight * 0.5, "*.weight", scope="elements")
            tensors.map(lambda rows: rows.sum(1), "head.weight", scope="rows", shape=(50257,))

        Args:
            compute: Takes a tensor and returns a new one, of any array library.
            *selectors: Patterns or functions, as for `select`. Without any, all tensors are computed.
            scope: What one value of the result depends on. `"tensor"`: on all values, so the function always gets
                whole tensors. `"rows"`: on the same index of the first dimension, so it gets some of the rows.
                `"elements"`: on the same element, so it gets parts of any shape. With the last two, slices read only
                what they need, and large tensors are saved in bounded memory.
            dtype: The dtype of the result, in any usual spelling; the tensor's if None.
            shape: The shape of the result; the tensor's if None.
            framework: The array library whose tensors `compute` takes, on the CPU; if None, the file's own.

        Returns:
            The view, in the order of this mapping. The function's result is checked when it is called.

        Raises:
            TensorNotFoundError: If nothing is selected (also a KeyError).
            DtypeError: If there is no such dtype, or its elements are not whole bytes (F4, F6).
            RefusedError: If the shape cannot be computed in that scope.
            TypeError: If a selector is neither a pattern nor a function.
            ValueError: If there is no such scope.
        """
        chosen = set(chosen_names(self, selectors)) if selectors else set(self)
        if not chosen:
            raise nothing_chosen(selectors, self, self.path)
        view = self._each(
            lambda name, lazy: (
                computed_tensor(name, compute, (lazy,), scope=scope, dtype=dtype, shape=shape, framework=framework)
                if name in chosen
                else lazy
            )
        )
        changed = any((lazy.dtype, lazy.shape) != (self[name].dtype, self[name].shape) for name, lazy in view.items())
        return self._view(view, self._flat_state()) if changed else view

    def _each(self, changed: Callable[[str, LazyTensor[ArrayT]], LazyTensor[ArrayT]]) -> TensorView[ArrayT]:
        with PausedCollector():
            return self._view({name: changed(name, lazy) for name, lazy in self.items()}, self.state)

    def _flat_state(self) -> State | None:
        """Return the state without its tree, for tensors that are no longer parts of it."""
        return State(library=self.state.library) if self.state and self.state.library is not None else None

    @property
    def _under_policy(self) -> LazyTensors | None:
        """The open files if only what was signed beside them may be read; views keep nothing else of their files."""
        return None

    def _view(self, tensors: Mapping[str, LazyTensor[ArrayT]], state: State | None = None) -> TensorView[ArrayT]:
        metadata = self.metadata if self.has_metadata else None
        return TensorView(tensors, path=self.path, metadata=metadata, state=state, beside=self)


class TensorView(LazyTensors[ArrayT]):
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
        beside: What the tensors are from: it knows how its files are encrypted, and whether only what was signed
            beside it may be read.
    """

    def __init__(
        self,
        tensors: Mapping[str, LazyTensor[ArrayT]],
        *,
        path: str,
        metadata: Mapping[str, str] | None = None,
        state: State | None = None,
        beside: LazyTensors | None = None,
    ) -> None:
        self._beside = None if beside is None else beside._under_policy
        self._encryption = None if beside is None else beside.encryption
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

    @property
    def encryption(self) -> Encryption | None:
        """How the files are encrypted; None if they are not, or there is no key for them."""
        return self._encryption

    @property
    def _under_policy(self) -> LazyTensors | None:
        return self._beside

    def companion(self, name: str, *, max_nbytes: int) -> bytes:
        """Return the content of a small file beside the checkpoint; see `LazyTensors.companion`."""
        if self._beside is None:
            return super().companion(name, max_nbytes=max_nbytes)
        return self._beside.companion(name, max_nbytes=max_nbytes)

    def _find(self, name: str) -> LazyTensor[ArrayT] | None:
        return self._tensors.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        first = [f"{lazy.name} {lazy.dtype} {list(lazy.shape)}" for lazy in islice(self.values(), _N_IN_REPR)]
        listed = ", ".join([*first, "…"] if len(self) > len(first) else first)
        return f"TensorView({self.path!r}, {counted(len(self), 'tensor')}, {self.nbytes:,} bytes: {listed or 'none'})"
