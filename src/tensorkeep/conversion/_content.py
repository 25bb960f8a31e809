"""What a conversion writes: the selected tensors as they will be, each once, with the tree and the metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tensorkeep.checkpoint import RewriteOptions, transform
from tensorkeep.collector import PausedCollector
from tensorkeep.conversion._sources import Sources
from tensorkeep.conversion._ties import Ties
from tensorkeep.dtypes import ALL_BY_NAME, BY_NAME
from tensorkeep.errors import DtypeError
from tensorkeep.formats.safetensors import SEAL_KEY, Alias, State, emit_state, parse_state
from tensorkeep.tensors import LazyTensors, Prepared, TensorView, prepare
from tensorkeep.texts import listed

_RESERVED: Final = ("format", "__metadata__", SEAL_KEY)
"""Metadata keys that are not names of tensors."""


class Content(msgspec.Struct, frozen=True):
    """What a conversion writes.

    Attributes:
        wanted: The selected tensors, as they are in the sources.
        new: The same tensors as they will be, in the same order.
        texts: Metadata of each file.
        ties: Which of the new tensors share bytes in the sources.
        prepared: What is stored.
    """

    wanted: LazyTensors
    new: LazyTensors
    texts: Mapping[str, str] | None
    ties: Ties
    prepared: Prepared

    @property
    def nbytes(self) -> int:
        """Size of the tensors that are stored, in bytes."""
        return sum(host.nbytes for host in self.prepared.to_write.values())

    @property
    def n_metadata(self) -> int:
        """Number of entries of metadata, beside `format` and what tensorkeep adds."""
        return len((self.texts or {}).keys() - set(_RESERVED))


def content_of(
    sources: Sources, rewrite: RewriteOptions, metadata: Mapping[str, str] | None, *, share_views: bool
) -> Content:
    """Select and transform tensors, and find those to store once; no data is read."""
    with PausedCollector():
        wanted = sources.wanted(rewrite)
        new = transform(wanted, rewrite)
        _refuse_dtypes(new)
        texts = new.metadata if metadata is None and new.has_metadata else metadata
        ties = sources.ties(wanted, new, {*_RESERVED, *(texts or {})})
        if not share_views:
            stored = {old for old, name in zip(wanted, new, strict=True) if name not in ties.aliases}
            sources.refuse_expanded(stored)
        return Content(wanted, new, texts, ties, _prepare(new, ties.aliases, share_views=share_views))


def _prepare(tensors: LazyTensors, same: Mapping[str, str], *, share_views: bool) -> Prepared:
    """Prepare tensors to be written; `same` maps each name that is not stored to the stored name of its tensor."""
    metadata = tensors.metadata if tensors.has_metadata else None
    stored = {name: lazy for name, lazy in tensors.items() if name not in same}
    view = TensorView(stored, path=tensors.path, metadata=metadata, state=tensors.state)
    prepared = prepare(view, ties="share" if share_views else "copy")
    if not same:
        return prepared
    aliases = prepared.aliases | {name: prepared.aliases.get(other, Alias(other)) for name, other in same.items()}
    state = State() if prepared.state is None else parse_state(prepared.state)
    text = emit_state(msgspec.structs.replace(state, aliases=aliases))
    return msgspec.structs.replace(prepared, state=text, aliases=aliases)


def _refuse_dtypes(tensors: LazyTensors) -> None:
    names = [name for name, lazy in tensors.items() if lazy.dtype in ALL_BY_NAME and lazy.dtype not in BY_NAME]
    if names:
        raise DtypeError(
            "a safetensors file cannot hold the dtype of some tensors",
            path=tensors.path,
            tensor=names[0],
            found=listed(f"`{name}` {tensors[name].dtype}" for name in names),
            hint="Leave them out with drop= (--drop), or save their real and imaginary parts instead",
        )
