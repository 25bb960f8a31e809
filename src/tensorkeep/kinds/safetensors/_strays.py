"""Files beside a checkpoint that are not part of it, but that programs may load by their names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from tensorkeep.errors import TensorkeepError
from tensorkeep.kinds.base import Finding
from tensorkeep.kinds.safetensors._examine import names_in, read_index, stray_shards
from tensorkeep.layout import stem_of_index

_BASE: Final = "model"
_PICKLED: Final = "pytorch_model"


def strays_beside(directory: str, stem: str) -> Iterator[Finding]:
    """Find files that no index lists, and pickles by whose name other programs look for the same model."""
    names = names_in(directory)
    listed: set[str] = set()
    for name in filter(stem_of_index, names):
        with suppress(TensorkeepError):  # an unreadable index lists nothing
            listed.update(read_index(os.path.join(directory, name), check=False).weight_map.values())
    yield from stray_shards(directory, stem, listed)
    variant = stem.removeprefix(_BASE)
    if stem.startswith(_BASE) and variant[:1] in {"", "."}:
        base = _PICKLED + variant
        for name in names:
            if name in {f"{base}.bin", f"{base}.bin.index.json", f"{_PICKLED}.bin.index{variant}.json"}:
                yield Finding("stray", "pickled weights beside safetensors: are they of the same model?", name)
