"""Reading a part of a tensor: a block of columns, which lies in the file as one short run per row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch  # noqa: F401 - here, so that no contender has to import it

import tensorkeep
from benchmarks import inputs
from benchmarks.case import AtLeast, Case, Contender, Place

__all__ = ["CASES"]

_COLUMNS = slice(1000, 1256)


class _Source:
    """A file of one square matrix."""

    def __init__(self, path: Path, name: str, extent: int) -> None:
        self.path = path
        self.name = name
        self.extent = extent


def _prepare(place: Place) -> _Source:
    extent = place.size(16_384, 2_048)
    path = inputs.tensor_file(place.folder, "F32", (extent, extent), 1)
    with safetensors.safe_open(path, framework="numpy") as file:
        return _Source(path, file.keys()[0], extent)


def _prepare_warm(place: Place) -> _Source:
    source = _prepare(place)
    inputs.read_into_cache(source.path)
    return source


def _make_cold(source: _Source) -> None:
    inputs.drop_from_cache(source.path)


def _get_slice(safe_open: Any, source: _Source) -> Any:
    """Read the block into memory of its own: as it comes, it is a view of the mapping, and nothing has been read."""
    with safe_open(source.path, framework="pt") as file:
        return file.get_slice(source.name)[:, _COLUMNS].contiguous()


def _index(source: _Source, **options: Any) -> Any:
    with tensorkeep.open(source.path, framework="torch", **options) as file:
        return file[source.name][:, _COLUMNS]


def _memmap(source: _Source) -> Any:
    start = source.path.stat().st_size - 4 * source.extent**2
    shape = (source.extent, source.extent)
    return np.memmap(source.path, np.float32, "r", start, shape)[:, _COLUMNS].copy()


_BY_GET_SLICE = Contender("tensorkeep", lambda source: _get_slice(tensorkeep.safe_open, source))
_BY_INDEX = Contender("tensorkeep.open(…)[name][…]", _index)
_BY_READS = Contender('tensorkeep.open(…, backend="pread")', lambda source: _index(source, backend="pread"))
_PEER = Contender("safetensors", lambda source: _get_slice(safetensors.safe_open, source))
_LIMIT = Contender("numpy.memmap", _memmap)

CASES = (
    Case(
        name="slice/get_slice",
        title="`safe_open(…).get_slice(…)[:, 1000:1256]` of a matrix of 1 GB, warm",
        prepare=_prepare_warm,
        ours=_BY_GET_SLICE,
        peers=(_PEER,),
        limits=(_LIMIT,),
        target=AtLeast(1.0),
    ),
    Case(
        name="slice/open",
        title="the same by `tensorkeep.open(…)[name][:, 1000:1256]`",
        prepare=_prepare_warm,
        ours=_BY_INDEX,
        peers=(_PEER, _BY_READS),
        limits=(_LIMIT,),
        target=AtLeast(1.0),
    ),
    Case(
        name="slice/cold",
        title="the same by `get_slice`, cold",
        prepare=_prepare,
        before=_make_cold,
        ours=_BY_GET_SLICE,
        peers=(_PEER, _BY_READS),
        limits=(_LIMIT,),
        target=AtLeast(1.0),
        rounds=7,
        remark="The block is 16.8 MB, in 16,384 runs of 1 kB that lie 64 kB apart.",
    ),
)
