"""Weights that libraries save through safetensors, intercepted before the file is written, and written with digests.

transformers and peft decide which tensors a model saves, and under which names: they undo conversions, gather weights
and leave some out. So they save as always; only their last call, which would write a file, is replaced here.
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
from tensorkeep.integrations.transformers._ties import metadata_of_ties, ties_of, untied_state
from tensorkeep.tensors import Ties

SHARD_SIZE: Final = "50GB"
"""Default size of a shard, as in transformers."""

_match_file = re.compile(r"(?P<stem>[^.]+?(\.[^.]+?)?)(-[0-9]{5}-of-[0-9]{5})?\.safetensors").fullmatch

_WRITERS: Final[tuple[tuple[str, str, Ties], ...]] = (
    ("transformers.modeling_utils", "safe_save_file", "share"),
    ("peft.peft_model", "safe_save_file", "share"),
    ("safetensors.torch", "save_file", "copy"),
)
"""Names under which libraries call the function that writes a file, and how to store tensors that share memory.

transformers and peft have already resolved those; readers of other libraries' files need a copy of each.
"""

_taking: Final = threading.RLock()
"""Held while these functions are replaced, since the replacement is global: one thread saves at a time."""


class _Weights(msgspec.Struct):
    """Tensors that will become the files of one checkpoint.

    Attributes:
        directory: The directory that the library chose.
        stem: The start of the file names that it chose, such as `model.fp16`.
        tensors: Name to tensor.
        metadata: Text by key.
        ties: What to do with tensors that share memory.
    """

    directory: str
    stem: str
    tensors: dict[str, Any]
    metadata: dict[str, str]
    ties: Ties


@contextmanager
def _taken_weights(directory: str) -> Iterator[list[_Weights]]:
    """Intercept what this thread saves through safetensors in the block, to a directory or below it."""
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
    """Replace each function that writes a file, and give what was there before."""
    for module_name, name, ties in _WRITERS:
        module = sys.modules.get(module_name)
        if module is not None:
            writer = getattr(module, name)
            setattr(module, name, _taking_writer(writer, take, ties))
            yield module, name, writer


def _taking_writer(writer: Callable[..., Any], take: _Take, ties: Ties) -> Callable[..., Any]:
    owner = threading.get_ident()

    def save_file(tensors: Any, filename: Any, metadata: Any = None, **options: Any) -> Any:
        is_intercepted = threading.get_ident() == owner and isinstance(tensors, Mapping)
        if not (is_intercepted and take(os.fsdecode(filename), tensors, metadata, ties)):
            return writer(tensors, filename, metadata, **options)
        return None

    return save_file


@contextmanager
def weights_with_digests(
    model: Any, directory: str, *, max_shard_size: int | str = SHARD_SIZE, sha256: bool = False
) -> Iterator[dict[str, Any] | None]:
    """Write what this thread saves through safetensors in the block, with digests, when the block ends.

    The directory must not be in use by readers yet, and nothing waits for the disk. Yields a state dict to save
    instead of the model's own, or None.
    """
    ties = ties_of(model)
    with _taken_weights(directory) as taken:
        yield untied_state(model, ties)
    for weights in taken:
        for name, owner in ties.declared.items():
            if owner in weights.tensors:  # stored as an alias, not a second time
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
    """Split the start of file names into base name and variant."""
    base, _, variant = stem.partition(".")
    return base, variant or None
