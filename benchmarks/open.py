"""Opening a file of very many tensors to read one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import safetensors
import torch  # noqa: F401 - here, so that no contender has to import it

import tensorkeep
from benchmarks import inputs, limits
from benchmarks.case import AtLeast, Case, Contender, Place

__all__ = ["CASES"]


class _Source:
    """A file, its header and the name of a tensor in its middle."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = inputs.header_of(path)
        names = list(json.loads(self.header))
        self.name = names[len(names) // 2]


def _prepare(place: Place) -> _Source:
    path = inputs.tensor_file(place.folder, "F32", (16, 32), place.size(100_000, 200))
    inputs.read_into_cache(path)
    return _Source(path)


def _open(safe_open: Any, source: _Source) -> Any:
    with safe_open(source.path, framework="pt") as file:
        return file.get_tensor(source.name)


CASES = (
    Case(
        name="open/100k",
        title="`safe_open` a file of 100,000 tensors and read one",
        prepare=_prepare,
        ours=Contender("tensorkeep", lambda source: _open(tensorkeep.safe_open, source)),
        peers=(
            Contender("safetensors", lambda source: _open(safetensors.safe_open, source)),
            Contender("tensorkeep.open", lambda s: tensorkeep.open(s.path, framework="torch")[s.name].load()),
        ),
        limits=limits.DECODED_HEADER,
        target=AtLeast(1.0),
        remark="Both libraries decode and check all of the header before they return the first tensor.",
    ),
)
