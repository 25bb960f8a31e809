"""A view of other tensors, with the metadata of those that they come from."""

from __future__ import annotations

from collections.abc import Mapping

from tensorkeep.formats.safetensors import State
from tensorkeep.tensors import LazyTensor, LazyTensors, TensorView


def view_of(tensors: LazyTensors, new: Mapping[str, LazyTensor]) -> TensorView:
    """Return a view of new tensors with the metadata and the array library of old ones."""
    state = tensors.state
    return TensorView(
        new,
        path=tensors.path,
        beside=tensors,
        metadata=tensors.metadata if tensors.has_metadata else None,
        state=State(library=state.library) if state is not None and state.library is not None else None,
    )
