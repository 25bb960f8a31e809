"""What libraries save through safetensors, taken over on its way to the file, and written with digests.

Which tensors a model saves, and under which names, is a matter of transformers and peft: conversions are undone,
weights are gathered and left out. So they save as ever; only their last call, the one that would write a file, is
answered here.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from tensorkeep.checkpoint import save_checkpoint
from tensorkeep.integrations.transformers._ties import metadata_of_ties, state_with_ties_apart, ties_of
from tensorkeep.tensors import Ties

SHARD_SIZE: Final = "50GB"
"""The largest shard where nobody says another: that of transformers."""

_match_file = re.compile(r"(?P<stem>[^.]+?(\.[^.]+?)?)(-[0-9]{5}-of-[0-9]{5})?\.safetensors").fullmatch

_WRITERS: Final[tuple[tuple[str, str, Ties], ...]] = (
    ("transformers.modeling_utils", "safe_save_file", "share"),
    ("peft.peft_model", "safe_save_file", "share"),
    ("safetensors.torch", "save_file", "copy"),
)
"""Names under which the function that writes a file is called, and what is done with tensors that share memory.

transformers and peft have seen to those; what others hand over is for readers who need each of them.
"""

_taking: Final = threading.RLock()
"""Held while those names mean something else; by one thread, as is everything that they then take."""


class _Weights(msgspec.Struct):
    """Tensors that are to become the files of one checkpoint.

    Attributes:
        directory: Where the library wants to have them.
        stem: What it wants the names of the files to begin with, such as `model.fp16`.
        tensors: Name to tensor.
        metadata: Free text by key.
        ties: What to do with tensors that share memory.
    """

    directory: str
    stem: str
    tensors: dict[str, Any]
    metadata: dict[str, str]
    ties: Ties


@contextmanager
def _taken_weights(directory: str) -> Iterator[list[_Weights]]:
    """Take over what this thread saves through safetensors to a directory, or below it, in the block."""
    taken: dict[tuple[str, str], _Weights] = {}
    listed: list[_Weights] = []

    def take(path: str, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None, ties: Ties) -> bool:
        found = _match_file(os.path.basename(path))
        place = os.path.dirname(os.path.abspath(path))
        if found is None or os.path.commonpath([place, root]) != root:
            return False
        weights = taken.get((place, found["stem"]))
        if weights is None:
            weights = taken[place, found["stem"]] = _Weights(place, found["stem"], {}, {}, ties)
            listed.append(weights)
        weights.tensors.update(tensors)
        weights.metadata.update(metadata or {})
        return True

    root = os.path.abspath(directory)
    with _taking:
        replaced = list(_replace_writers(take))
        try:
            yield listed
        finally:
            for module, name, writer in reversed(replaced):
                setattr(module, name, writer)


_Take = Callable[[str, Mapping[str, Any], Mapping[str, str] | None, Ties], bool]


def _replace_writers(take: _Take) -> Iterator[tuple[Any, str, Any]]:
    """Put a function in the place of each that writes a file, and give what was there before."""
    for module_name, name, ties in _WRITERS:
        module = sys.modules.get(module_name)
        if module is not None:
            writer = getattr(module, name)
            setattr(module, name, _taking_writer(writer, take, ties))
            yield module, name, writer


def _taking_writer(writer: Callable[..., Any], take: _Take, ties: Ties) -> Callable[..., Any]:
    owner = threading.get_ident()

    def save_file(tensors: Any, filename: Any, metadata: Any = None, **options: Any) -> Any:
        is_ours = threading.get_ident() == owner and isinstance(tensors, Mapping)
        if not (is_ours and take(os.fsdecode(filename), tensors, metadata, ties)):
            return writer(tensors, filename, metadata, **options)
        return None

    return save_file


@contextmanager
def weights_with_digests(
    model: Any, directory: str, *, max_shard_size: int | str = SHARD_SIZE, sha256: bool = False
) -> Iterator[dict[str, Any] | None]:
    """Write with digests what this thread saves of a model through safetensors in the block, when the block ends.

    It is for a place that nobody reads from yet: nothing waits for the disk.
    """
    ties = ties_of(model)
    with _taken_weights(directory) as taken:
        yield state_with_ties_apart(model, ties)
    for weights in taken:
        for name, owner in ties.declared.items():
            if owner in weights.tensors:  # the name of a tensor that is there: no second one is written
                weights.tensors.setdefault(name, weights.tensors[owner])
        base, variant = split_stem(weights.stem)
        save_checkpoint(
            weights.tensors,
            weights.directory,
            max_shard_size=max_shard_size,
            base_name=base,
            variant=variant,
            metadata=weights.metadata | metadata_of_ties(ties),
            ties=weights.ties,
            sha256=sha256,
            durable=False,
        )


def split_stem(stem: str) -> tuple[str, str | None]:
    """Return what names begin with apart from the variant, and the variant."""
    base, _, variant = stem.partition(".")
    return base, variant or None
