"""What the tensors of a checkpoint are: their digests, as its headers have them or from their bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from tensorkeep.arrays import TensorToWrite
from tensorkeep.deltas.reading._description import Content, Texts
from tensorkeep.digests import new_hasher
from tensorkeep.formats.safetensors import State, emit_state, parse_state
from tensorkeep.layout import Index
from tensorkeep.parallel import ProgressMeter, parallel_map
from tensorkeep.tensors import LazyTensor, LazyTensors

N_THREADS: Final = min(4, os.cpu_count() or 1)
"""Tensors that are read at once; each takes a few MiB."""


def content_of(lazy: LazyTensor) -> Content:
    """Return what a tensor is; one without a digest is read."""
    return Content(lazy.dtype, lazy.shape, (lazy.digest or hash_bytes(lazy.tensor_to_write())).hex())


def contents_of(tensors: LazyTensors, names: Iterable[str] | None = None) -> dict[str, Content]:
    """Return what some tensors are, or all."""
    chosen = list(tensors if names is None else names)
    meter = ProgressMeter(None, 0)
    unknown = [name for name in chosen if tensors[name].digest is None]
    n_threads = min(len(unknown), N_THREADS)
    found = parallel_map(lambda name: content_of(tensors[name]), unknown, n_threads=n_threads, meter=meter)
    read = dict(zip(unknown, found, strict=True))
    return {name: read.get(name) or content_of(tensors[name]) for name in chosen}


def texts_of(tensors: LazyTensors) -> Texts:
    """Return what a checkpoint has beside its tensors."""
    saved = tensors.state
    index: Index | None = getattr(tensors, "index", None)  # views have none
    state = None if saved is None else State(library=saved.library, tree=saved.tree)
    return Texts(
        tensors.metadata if tensors.has_metadata else None,
        None if state is None or state == State() else emit_state(state),
        list(tensors),
        None if index is None else index.weight_map,
        {} if index is None else index.splits,
    )


def state_of(texts: Texts) -> State | None:
    """Return the nested state that the tensors are parts of."""
    return None if texts.state is None else parse_state(texts.state)


def hash_bytes(tensor: TensorToWrite) -> bytes:
    """Return the BLAKE3 of a tensor's bytes."""
    hasher = new_hasher()
    for buffer in tensor.buffers():
        hasher.update(buffer)
    return hasher.digest()
