"""A state on its way to files: its tensors by name, each byte of them once, and all else as one text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tensorkeep.arrays import TensorToWrite, attributes_of, encode_object, is_tensor, plain_library, tensor_to_write
from tensorkeep.collector import PausedCollector
from tensorkeep.errors import SharedMemoryError
from tensorkeep.formats.safetensors import Alias, State, emit_state
from tensorkeep.state import encode_tree
from tensorkeep.tensors.lazy import LazyTensor, LazyTensors
from tensorkeep.tensors.writing._placeholder import PlaceholderTensor
from tensorkeep.tensors.writing._sharing import Sharing, Ties, check_ties, share, shared

_KEPT_KEYS = frozenset({"format", "__metadata__", "tensorkeep", "tensorkeep.state"})
"""Keys of metadata that mean something else than a tensor that is tied to another."""


class Prepared(msgspec.Struct, frozen=True):
    """What is to be written of a state.

    Attributes:
        to_write: Name to description, of all that is stored.
        tensors: Name to the tensor itself, of all but memory that only others are views of.
        state: What files are to say of the state; None where names say all.
        aliases: Name to what it is a view of, of tensors that are not stored on their own.
        metadata: Free text by key that an open file has; None where there is none.
    """

    to_write: dict[str, TensorToWrite]
    tensors: Mapping[str, Any]
    state: str | None
    aliases: dict[str, Alias]
    metadata: dict[str, str] | None

    def with_ties(self, metadata: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """Return metadata that also lists tied names, as `safetensors.torch.save_model` does."""
        ties = ties_as_text(self.aliases)
        return {**ties, **(metadata or {})} if ties else metadata


def ties_as_text(aliases: Mapping[str, Alias]) -> dict[str, str]:
    """Return what metadata say of names that are the same tensor: each to the name that is stored."""
    return {name: alias.of for name, alias in aliases.items() if alias.is_whole and name not in _KEPT_KEYS}


def prepare(state: Any, *, ties: Ties = "share", is_flat_bare: bool = False) -> Prepared:
    """Take a state apart."""
    check_ties(ties)
    said: State | None
    tensors: Mapping[str, Any]
    with PausedCollector():
        if isinstance(state, LazyTensors):
            said, tensors = _said_of(state), dict(state.items())
        elif is_flat_bare and _is_flat(state):
            said, tensors = None, state
        else:
            said, tensors = _taken_apart(state)
        to_write = {name: _describe(name, tensor) for name, tensor in tensors.items()}
        if ties == "error":
            _refuse_shared(to_write)
        sharing = share(to_write, with_expanded=said is not None) if ties == "share" else Sharing(to_write, {}, ())
        if sharing.aliases:
            said = msgspec.structs.replace(said or State(), aliases=sharing.aliases, storages=sharing.storages)
        metadata = state.metadata if isinstance(state, LazyTensors) and state.has_metadata else None
        return Prepared(
            sharing.to_write, tensors, None if said is None else emit_state(said), sharing.aliases, metadata
        )


def _said_of(tensors: LazyTensors) -> State | None:
    state = tensors.state
    return State(library=state.library, tree=state.tree) if state and (len(state.tree) or state.library) else None


def _is_flat(state: Any) -> bool:
    """Return whether a state is nothing but tensors by name."""
    return isinstance(state, Mapping) and all(
        type(name) is str and (isinstance(tensor, LazyTensor) or is_tensor(tensor)) for name, tensor in state.items()
    )


def _taken_apart(state: Any) -> tuple[State | None, Mapping[str, Any]]:
    if isinstance(state, Mapping) and not isinstance(state, dict):
        state = dict(state)
    if type(state) is dict and all(
        type(name) is str and isinstance(lazy, LazyTensor) for name, lazy in state.items()
    ):
        return None, state
    leaves = _Leaves()
    encoded = encode_tree(state, leaf=leaves.leaf, compose=encode_object)
    return State(library=leaves.library, tree=msgspec.Raw(msgspec.json.encode(encoded.tree))), encoded.tensors


class _Leaves:
    """Tells tensors from other data, and what the tree says of each.

    Attributes:
        library: The array library of the first tensor that is of one.
    """

    def __init__(self) -> None:
        self.library: str | None = None

    def leaf(self, value: Any) -> dict[str, Any] | None:
        """Return what the tree says of a tensor; None for what is none."""
        library: str | None
        marks: dict[str, Any]
        if isinstance(value, PlaceholderTensor):
            library, marks = value.library, {}
        elif isinstance(value, LazyTensor):
            library, marks = value.library, dict(value.marks)
            if library is None:
                return marks
        else:
            library = plain_library(value)
            if library is None:
                return None
            marks = attributes_of(value)
        if self.library is None:
            self.library = library
        return marks if library == self.library else {"library": library, **marks}


def _describe(name: str, tensor: Any) -> TensorToWrite:
    return (
        tensor.tensor_to_write()
        if isinstance(tensor, LazyTensor | PlaceholderTensor)
        else tensor_to_write(tensor, name)
    )


def _refuse_shared(to_write: Mapping[str, TensorToWrite]) -> None:
    groups = shared(to_write)
    if groups:
        raise SharedMemoryError(
            "tensors share memory",
            tensor=groups[0][0],
            found="; ".join(", ".join(f"`{name}`" for name in group) for group in groups[:10]),
            hint='Save one of each group, or pass ties="share" to store their memory once, or "copy" to save each',
        )
