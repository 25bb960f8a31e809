"""Reading part of a tensor: a block of columns, which is one short run per row in the file."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import torch  # noqa: F401 - here, so that no contender has to import it

import tensorkeep
from benchmarks import inputs, limits
from benchmarks.case import AtLeast, Case, Contender, Place

__all__ = ["CASES"]

_COLUMNS = slice(1000, 1256)


class _Source:
    """A file of one square matrix."""

    def __init__(self, path: Path, extent: int) -> None:
        self.path = path
        self.extent = extent
        self.data_start = path.stat().st_size - 4 * extent**2
        with safetensors.safe_open(path, framework="numpy") as file:
            (self.name,) = file.keys()

    @cached_property
    def mapped(self) -> npt.NDArray[np.float32]:
        """The matrix, with all pages populated."""
        return limits.mapped_pages(self.path)[self.data_start :].view(np.float32).reshape(self.extent, self.extent)


def _prepare(place: Place) -> _Source:
    extent = place.size(16_384, 2_048)
    return _Source(inputs.tensor_file(place.folder, "F32", (extent, extent), 1), extent)


def _prepare_warm(place: Place) -> _Source:
    source = _prepare(place)
    inputs.read_into_cache(source.path)
    return source


def _make_cold(source: _Source) -> None:
    inputs.drop_from_cache(source.path)


def _get_slice(safe_open: Any, source: _Source) -> Any:
    """Read the block into its own memory; what is returned is a view of the mapping, not yet read."""
    with safe_open(source.path, framework="pt") as file:
        return file.get_slice(source.name)[:, _COLUMNS].contiguous()


def _index(source: _Source, **options: Any) -> Any:
    with tensorkeep.open(source.path, framework="torch", **options) as file:
        return file[source.name][:, _COLUMNS]


def _memmap(source: _Source) -> Any:
    shape = (source.extent, source.extent)
    return np.memmap(source.path, np.float32, "r", source.data_start, shape)[:, _COLUMNS].copy()


_BY_GET_SLICE = Contender("tensorkeep", lambda source: _get_slice(tensorkeep.safe_open, source))
_BY_INDEX = Contender("tensorkeep.open(…), indexed", _index)
_BY_READS = Contender('tensorkeep.open(…, backend="pread")', lambda source: _index(source, backend="pread"))
_PEER = Contender("safetensors", lambda source: _get_slice(safetensors.safe_open, source))
_MEMMAP = Contender("numpy.memmap", _memmap)
_COPY = Contender("the copy alone, pages in place", lambda source: source.mapped[:, _COLUMNS].copy())
_TOUCH = Contender("every page of the file touched", lambda source: limits.touch_every_page(source.path))

CASES = (
    Case(
        name="slice/get_slice",
        title="`safe_open(…).get_slice(…)[:, 1000:1256]` of a matrix of 1 GB, warm",
        prepare=_prepare_warm,
        ours=_BY_GET_SLICE,
        peers=(_PEER, _MEMMAP),
        limits=(_COPY,),
        target=AtLeast(1.0),
        remark="Both return a view of the mapping, so the time includes `.contiguous()`, which reads the block.",
    ),
    Case(
        name="slice/open",
        title="the same by `tensorkeep.open(…)[name][:, 1000:1256]`",
        prepare=_prepare_warm,
        ours=_BY_INDEX,
        peers=(_PEER, _MEMMAP, _BY_READS),
        limits=(_COPY,),
        target=AtLeast(1.0),
    ),
    Case(
        name="slice/cold",
        title="the same by `get_slice`, cold",
        prepare=_prepare,
        before=_make_cold,
        ours=_BY_GET_SLICE,
        peers=(_PEER, _MEMMAP, _BY_READS),
        limits=(_TOUCH,),
        target=AtLeast(1.0),
        rounds=7,
        remark="The block is 16.8 MB, in 16,384 runs of 1 kB that are 64 kB apart. *All figures* shows how much was "
        "read from disk: the system reads ahead, and tensorkeep's own reads bridge gaps of up to 64 kB.",
    ),
)
