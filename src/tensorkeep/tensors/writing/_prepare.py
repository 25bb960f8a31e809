"""A state prepared for writing: its tensors by name, each byte once, and everything else as one text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tensorkeep.arrays import (
    TensorToWrite,
    any_tensor_to_write,
    codec_for,
    encode_object,
    exports_memory,
    is_tensor,
    plain_library,
)
from tensorkeep.collector import PausedCollector
from tensorkeep.errors import LimitError, SharedMemoryError
from tensorkeep.formats.safetensors import Alias, State, emit_state, parse_state
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.state import encode_tree, path_of_most
from tensorkeep.tensors.lazy import LazyTensor, LazyTensors
from tensorkeep.tensors.writing._placeholder import PlaceholderTensor
from tensorkeep.tensors.writing._sharing import Sharing, Ties, check_ties, share, shared

_KEPT_KEYS = frozenset({"format", "__metadata__", "tensorkeep", "tensorkeep.state"})
"""Keys of metadata that cannot name a tied tensor, since they mean something else."""

_MAX_JSON_NBYTES = 12
"""Most bytes that one character takes in JSON: an emoji is two escapes, such as `\\ud83d\\ude00`."""

_OWN = LazyTensor | PlaceholderTensor


class Prepared(msgspec.Struct, frozen=True):
    """A state prepared for writing.

    Attributes:
        to_write: Name to description, of everything that is stored.
        tensors: Name to tensor, of every tensor of the state.
        state: The text that files will have for the state; None if the names say everything.
        aliases: Name to the stored tensor that it is a view of, for tensors that are not stored themselves.
        metadata: The metadata of the open file that is saved; None if there is none.
    """

    to_write: dict[str, TensorToWrite]
    tensors: Mapping[str, Any]
    state: str | None
    aliases: dict[str, Alias]
    metadata: dict[str, str] | None

    def check_length(self, max_nbytes: int, to_json: Callable[[str], str | bytes] = msgspec.json.encode) -> None:
        """Refuse a text that is longer than so many bytes in JSON, and name the part that takes most of it."""
        text = self.state or ""
        nbytes = len(to_json(text)) if len(text) > max_nbytes // _MAX_JSON_NBYTES else 0
        if nbytes <= max_nbytes:
            return
        part = path_of_most(msgspec.json.decode(parse_state(text).tree or b"null"))
        raise LimitError(
            "there is too much data beside the tensors",
            expected=f"at most {max_nbytes:,} bytes as text",
            found=f"{nbytes:,} bytes" + (f", most of it in {part!r}" if part else ""),
            hint="Make long lists of numbers an array, numpy.array(...), and long text bytes, text.encode()",
        )

    def with_ties(self, metadata: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """Return metadata that also lists tied names, as `safetensors.torch.save_model` does."""
        ties = ties_as_text(self.aliases)
        return {**ties, **(metadata or {})} if ties else metadata


def ties_as_text(aliases: Mapping[str, Alias]) -> dict[str, str]:
    """Return, for metadata, each name of a tensor with several to the name under which it is stored."""
    return {name: alias.of for name, alias in aliases.items() if alias.is_whole and name not in _KEPT_KEYS}


def prepare(state: Any, *, ties: Ties = "share", is_flat_bare: bool = False) -> Prepared:
    """Prepare a state; one that is nothing but tensors by name gets no text if `is_flat_bare`."""
    check_ties(ties)
    saved: State | None
    tensors: Mapping[str, Any]
    with PausedCollector():
        if isinstance(state, LazyTensors):
            saved, tensors = _saved_state_of(state), dict(state.items())
        elif is_flat_bare and _is_flat(state):
            saved, tensors = None, state
        else:
            saved, tensors = _encoded(state)
        to_write = {name: _describe(name, tensor) for name, tensor in tensors.items()}
        if ties == "error":
            _refuse_shared(to_write)
        sharing = share(to_write, with_expanded=saved is not None) if ties == "share" else Sharing(to_write, {}, ())
        if sharing.aliases:
            saved = msgspec.structs.replace(saved or State(), aliases=sharing.aliases, storages=sharing.storages)
        metadata = state.metadata if isinstance(state, LazyTensors) and state.has_metadata else None
        text = None if saved is None else emit_state(saved)
        prepared = Prepared(sharing.to_write, tensors, text, sharing.aliases, metadata)
        prepared.check_length(MAX_HEADER_NBYTES)
        return prepared


def _saved_state_of(tensors: LazyTensors) -> State | None:
    state = tensors.state
    return State(library=state.library, tree=state.tree) if state and (len(state.tree) or state.library) else None


def _is_flat(state: Any) -> bool:
    """Say whether a state is nothing but tensors by name."""
    return isinstance(state, Mapping) and all(
        type(name) is str and (isinstance(tensor, _OWN) or is_tensor(tensor) or exports_memory(tensor))
        for name, tensor in state.items()
    )


def _encoded(state: Any) -> tuple[State | None, Mapping[str, Any]]:
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
        library: The array library of the first tensor; the tree names a library only for tensors of another.
    """

    def __init__(self) -> None:
        self.library: str | None = None

    def leaf(self, value: Any) -> dict[str, Any] | None:
        """Return what the tree says of a tensor; None for a value that is not one."""
        library: str | None
        attributes: dict[str, Any]
        if isinstance(value, PlaceholderTensor):
            library, attributes = value.library, {}
        elif isinstance(value, LazyTensor):
            library, attributes = value.library, dict(value.marks)
            if library is None:
                return attributes
        else:
            library = plain_library(value)
            if library is None:
                return {} if exports_memory(value) else None
            attributes = codec_for(library).attributes_of(value)
        if self.library is None:
            self.library = library
        return attributes if library == self.library else {"library": library, **attributes}


def _describe(name: str, tensor: Any) -> TensorToWrite:
    return tensor.tensor_to_write() if isinstance(tensor, _OWN) else any_tensor_to_write(tensor, name)


def _refuse_shared(to_write: Mapping[str, TensorToWrite]) -> None:
    groups = shared(to_write)
    if groups:
        raise SharedMemoryError(
            "tensors share memory",
            tensor=groups[0][0],
            found="; ".join(", ".join(f"`{name}`" for name in group) for group in groups[:10]),
            hint='Save one of each group, or pass ties="share" to store their memory once, or "copy" to save each',
        )
