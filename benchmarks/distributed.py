"""Four ranks with gloo save and load their parts of a model: torch's ways and ours."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import shutil
import socket
import warnings
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from benchmarks.case import AtLeast, Case, Contender, Place
from tensorkeep.integrations.distributed import TensorkeepReader, TensorkeepWriter

__all__ = ["CASES"]

_N_RANKS = 4
_OURS, _HF, _PLAIN = "tensorkeep", "HuggingFaceStorageWriter, consolidated", "FileSystemWriter"

_WRITERS: dict[str, Callable[[str], Any]] = {
    _OURS: TensorkeepWriter,
    f"{_OURS}, per_rank": lambda path: TensorkeepWriter(path, layout="per_rank"),
    _HF: lambda path: HuggingFaceStorageWriter(
        path, save_distributed=True, enable_consolidation=True, thread_count_consolidation=2
    ),
    _PLAIN: lambda path: dcp.FileSystemWriter(path, thread_count=2),
}
_READERS: dict[str, Callable[[str], Any]] = {
    _OURS: TensorkeepReader,
    _HF: HuggingFaceStorageReader,
    _PLAIN: dcp.FileSystemReader,
}


class _Team:
    """This process as rank 0, and three more; all have the same shards of 64 square matrices."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])  # one import of torch for all
        self._others: list[Connection] = []
        for rank in range(1, _N_RANKS):
            ours, theirs = context.Pipe()
            context.Process(target=_follow, args=(rank, port, theirs), daemon=True).start()
            self._others.append(ours)
        _join(0, port)
        atexit.register(dist.destroy_process_group)

    def do(self, step: Callable[..., None], *args: Any) -> None:
        """Make all ranks do the same."""
        for other in self._others:
            other.send((step, args))
        step(*args)


@cache
def _team() -> _Team:
    return _Team()


def _join(rank: int, port: int) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=_N_RANKS)


def _follow(rank: int, port: int, connection: Connection) -> None:
    _join(rank, port)
    while True:
        try:
            step, args = connection.recv()
        except EOFError:
            os._exit(0)
        step(*args)


@cache
def _state(width: int, dim: int, value: float) -> dict[str, DTensor]:
    """Return 64 matrices, sharded by rows or columns."""
    mesh = init_device_mesh("cpu", (_N_RANKS,))
    shape = (width // _N_RANKS, width) if dim == 0 else (width, width // _N_RANKS)
    return {
        f"layers.{layer}.weight": DTensor.from_local(torch.full(shape, value + layer), mesh, [Shard(dim)])
        for layer in range(64)
    }


def _save(width: int, dim: int, writer: str, path: str) -> None:
    dcp.save(dict(_state(width, dim, 1.0)), storage_writer=_WRITERS[writer](path))


def _load(width: int, dim: int, reader: str, path: str) -> None:
    dcp.load(dict(_state(width, dim, 0.0)), storage_reader=_READERS[reader](path))


class _Model:
    """The model, and where each way saves it."""

    def __init__(self, place: Place, dim: int) -> None:
        self.folder = place.folder / f"distributed-{dim}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.size = (place.size(2000, 64), dim)
        _team().do(_make, *self.size)

    def path_of(self, way: str) -> Path:
        return self.folder / way

    def clear(self) -> None:
        """Start with an empty directory, like a new step of a run."""
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        os.sync()

    def save(self, way: str) -> None:
        _team().do(_save, *self.size, way, str(self.path_of(way)))

    def load(self, way: str) -> None:
        _team().do(_load, *self.size, way, str(self.path_of(way)))


def _make(width: int, dim: int) -> None:
    _state(width, dim, 1.0)
    dist.barrier()


def _saved(dim: int) -> Callable[[Place], _Model]:
    """Declare a model saved in each way."""

    def prepare(place: Place) -> _Model:
        model = _Model(place, dim)
        for way in _READERS:
            if not model.path_of(way).exists():
                model.save(way)
        _team().do(_make_target, *model.size)
        return model

    return prepare


def _make_target(width: int, dim: int) -> None:
    _state(width, dim, 0.0)
    dist.barrier()


def _saving(way: str) -> Contender:
    return Contender(way, lambda model: model.save(way))


def _loading(way: str, name: str) -> Contender:
    return Contender(name, lambda model: model.load(way))


CASES = (
    Case(
        name="distributed/save-rows",
        title="1.0 GB, 64 F32 matrices, saved by 4 ranks with a quarter of the rows each",
        prepare=lambda place: _Model(place, 0),
        ours=_saving(_OURS),
        peers=(_saving(_HF), _saving(_PLAIN), _saving(f"{_OURS}, per_rank")),
        target=AtLeast(2.0),
        max_extra_nbytes=64 * 2**20,
        before=_Model.clear,
        rounds=5,
        remark="All wait until their files are on disk, except for torch's consolidation. Memory is the first "
        "rank's. tensorkeep also computes digests, for which it rereads what several ranks wrote, from the page "
        "cache.",
    ),
    Case(
        name="distributed/save-columns",
        title="the same, with a quarter of the columns each",
        prepare=lambda place: _Model(place, 1),
        ours=_saving(_OURS),
        peers=(_saving(_HF), _saving(_PLAIN), _saving(f"{_OURS}, per_rank")),
        target=AtLeast(2.0),
        max_extra_nbytes=64 * 2**20,
        before=_Model.clear,
        rounds=5,
        remark="Each row of a rank has 2,000 bytes, a separate write if saved in place.",
    ),
    Case(
        name="distributed/load-rows",
        title="1.0 GB loaded by 4 ranks by rows, from each format's own files",
        prepare=_saved(0),
        ours=_loading(_OURS, _OURS),
        peers=(_loading(_HF, "HuggingFaceStorageReader"), _loading(_PLAIN, "FileSystemReader")),
        target=AtLeast(1.0),
        max_extra_nbytes=64 * 2**20,
        rounds=5,
    ),
    Case(
        name="distributed/load-columns",
        title="the same by columns",
        prepare=_saved(1),
        ours=_loading(_OURS, _OURS),
        peers=(_loading(_HF, "HuggingFaceStorageReader"), _loading(_PLAIN, "FileSystemReader")),
        target=AtLeast(1.0),
        max_extra_nbytes=64 * 2**20,
        rounds=5,
    ),
)
