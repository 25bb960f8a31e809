"""What is stored of tensors that share memory: the same one once, and what several overlap in if that is wanted."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tensorkeep.formats.safetensors import Alias, State, emit_state, parse_state
from tensorkeep.tensors import LazyTensors, Prepared, TensorView, prepare


def prepared_of(tensors: LazyTensors, same: Mapping[str, str], *, share_views: bool) -> Prepared:
    """Describe what is to be written."""
    metadata = tensors.metadata if tensors.has_metadata else None
    stored = {name: lazy for name, lazy in tensors.items() if name not in same}
    view = TensorView(stored, path=tensors.path, metadata=metadata, state=tensors.state)
    prepared = prepare(view, ties="share" if share_views else "copy")
    if not same:
        return prepared
    first = prepared.aliases
    aliases = {**first, **{name: first.get(other, Alias(other)) for name, other in same.items()}}
    said = State() if prepared.state is None else parse_state(prepared.state)
    state = emit_state(msgspec.structs.replace(said, aliases=aliases))
    return msgspec.structs.replace(prepared, state=state, aliases=aliases)
