"""Loading whole files: many small tensors (cost of objects) and few large ones (cost of bytes)."""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

import tensorkeep.numpy
import tensorkeep.torch
from benchmarks import inputs, limits
from benchmarks.case import AtLeast, Case, Contender, Place

__all__ = ["CASES"]


class _Source:
    """A file of tensors, and what the limits need."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = inputs.header_of(path)
        self.n_tensors = len(json.loads(self.header))

    @cached_property
    def pt_path(self) -> Path:
        """The same tensors as `torch.save` writes them."""
        return inputs.pt_copy(self.path)

    @cached_property
    def mapped(self) -> limits.Bytes:
        """The file's bytes, with all pages populated."""
        return limits.mapped_pages(self.path)

    @cached_property
    def touched(self) -> limits.Bytes:
        """Equally large memory, with all pages populated."""
        return np.ones_like(self.mapped)


def _many(dtype: str, full: int) -> Callable[[Place], _Source]:
    """Declare a file of tensors of 2 kB."""
    shape = (16, 32) if dtype == "F32" else (32, 32)

    def prepare(place: Place) -> _Source:
        return _warm(_Source(inputs.tensor_file(place.folder, dtype, shape, place.size(full, 200))))

    return prepare


def _with_pt(prepare: Callable[[Place], _Source]) -> Callable[[Place], _Source]:
    """Declare the same and its copy by `torch.save`."""

    def prepare_both(place: Place) -> _Source:
        source = prepare(place)
        inputs.read_into_cache(source.pt_path)
        return source

    return prepare_both


def _large(place: Place) -> _Source:
    """Make the file of 201 tensors, 2.5 GB."""
    return _Source(inputs.tensor_file(place.folder, "BF16", (2048, place.size(3040, 32)), place.size(201, 11)))


def _large_warm(place: Place) -> _Source:
    return _warm(_large(place))


def _warm(source: _Source) -> _Source:
    inputs.read_into_cache(source.path)
    return source


def _make_cold(source: _Source) -> None:
    inputs.drop_from_cache(source.path)


def _touched(tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
    """Read a byte of every page."""
    for tensor in tensors.values():
        tensor.view(torch.uint8).reshape(-1)[:: mmap.PAGESIZE].sum()
    return tensors


def _copy_into_touched(source: _Source) -> None:
    source.touched[:] = source.mapped


_OURS = Contender("tensorkeep", lambda source: tensorkeep.torch.load_file(source.path))
_PEER = Contender("safetensors", lambda source: safetensors.torch.load_file(source.path))
_PEERS = (
    _PEER,
    Contender("torch.load(mmap=True)", lambda source: torch.load(source.pt_path, mmap=True)),
)
_EMPTY_TENSORS = limits.without_collector(
    "as many empty torch tensors", lambda source: [torch.empty(0) for _ in range(source.n_tensors)]
)
_ARRAY_VIEWS = limits.without_collector(
    "as many NumPy views", lambda source: limits.array_views(source.n_tensors, 2048)
)
_TOUCH = Contender("every page of the file touched", lambda source: limits.touch_every_page(source.path))
_READ = Contender("pread by 2 threads", lambda source: limits.read_by_two_threads(source.path))
_OWNED = Contender("tensorkeep, read", lambda source: tensorkeep.torch.load_file(source.path, backend="pread"))
_PEER_OWNED = Contender("safetensors, read", lambda source: safetensors.torch.load_file(source.path, backend="pread"))

CASES = (
    Case(
        name="load/torch-f32-small",
        title="`torch.load_file`, 20,000 F32 tensors of 2 kB",
        prepare=_with_pt(_many("F32", 20_000)),
        ours=_OURS,
        peers=_PEERS,
        limits=(_EMPTY_TENSORS, *limits.DECODED_HEADER),
        target=AtLeast(7.0),
    ),
    Case(
        name="load/torch-bf16-small",
        title="`torch.load_file`, 20,000 BF16 tensors of 2 kB",
        prepare=_many("BF16", 20_000),
        ours=_OURS,
        peers=(_PEER,),
        limits=(_EMPTY_TENSORS, *limits.DECODED_HEADER),
        target=AtLeast(5.0),
    ),
    Case(
        name="load/numpy-f32-small",
        title="`numpy.load_file`, 20,000 F32 tensors of 2 kB",
        prepare=_many("F32", 20_000),
        ours=Contender("tensorkeep", lambda source: tensorkeep.numpy.load_file(source.path)),
        peers=(Contender("safetensors", lambda source: safetensors.numpy.load_file(source.path)),),
        limits=(_ARRAY_VIEWS, *limits.DECODED_HEADER),
        target=AtLeast(6.0),
        remark="The target is about the sum of two limits, creating the views and decoding the header. Checking and "
        "freeing the header come on top.",
    ),
    Case(
        name="load/torch-100k",
        title="`torch.load_file`, 100,000 F32 tensors of 2 kB",
        prepare=_many("F32", 100_000),
        ours=_OURS,
        peers=(_PEER,),
        limits=(_EMPTY_TENSORS, *limits.DECODED_HEADER),
        target=AtLeast(5.0),
        rounds=7,
    ),
    Case(
        name="load/large-mapped",
        title="`torch.load_file`, 2.5 GB in 201 BF16 tensors, warm, no page touched",
        prepare=_with_pt(_large_warm),
        ours=_OURS,
        peers=_PEERS,
        limits=(_EMPTY_TENSORS, *limits.DECODED_HEADER),
        target=AtLeast(3.0),
        rounds=31,
        remark="Only the header is read. safetensors' memory is page cache that it has mapped.",
    ),
    Case(
        name="load/large-owned",
        title='the same into owned memory (`backend="pread"`), warm',
        prepare=_large_warm,
        ours=_OWNED,
        peers=(_PEER_OWNED,),
        limits=(
            _READ,
            Contender("memcpy into fresh memory", lambda source: limits.copy_into_fresh_memory(source.mapped)),
            Contender("memcpy into touched memory", _copy_into_touched),
        ),
        target=AtLeast(2.0),
        rounds=7,
    ),
    Case(
        name="load/large-cold",
        title='the same cold (`backend="pread"`; the peer maps and touches every page)',
        prepare=_large,
        before=_make_cold,
        ours=_OWNED,
        peers=(
            Contender("safetensors, mapped and touched", lambda s: _touched(safetensors.torch.load_file(s.path))),
            _PEER_OWNED,
            Contender("tensorkeep, mapped and touched", lambda s: _touched(tensorkeep.torch.load_file(s.path))),
        ),
        limits=(_TOUCH, _READ),
        target=AtLeast(1.5),
        rounds=7,
        remark="Mapping and touching is faster than reading here: the system reads ahead, and mapping needs less "
        "processor time than copying. Cold means dropped from this system's page cache; the host of a virtual "
        "disk may still cache the file.",
    ),
)
