"""A training state of jax that is sharded over processes, saved and restored: orbax's manager and ours."""

from __future__ import annotations

import atexit
import importlib
import multiprocessing
import os
import shutil
import socket
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.case import AtLeast, Case, Contender, Place

__all__ = ["CASES"]

_MODULES = {"tensorkeep": "tensorkeep.integrations.orbax", "orbax": "orbax.checkpoint"}
"""Each way to the module whose `CheckpointManager` is used: one program for both."""

_N_DEVICES = 4
_STEP = 1


class _Team:
    """Processes of one jax job, which share four devices of the CPU."""

    def __init__(self, n_processes: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        context = multiprocessing.get_context("spawn")
        self._members: list[Connection] = []
        for number in range(n_processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_follow, args=(number, n_processes, port, theirs), daemon=True)
            process.start()
            atexit.register(process.kill)  # jax has them survive a request to end
            self._members.append(ours)

    def do(self, step: Callable[..., None], *args: Any) -> None:
        """Make all processes do the same, and wait for them."""
        for member in self._members:
            member.send((step, args))
        for member in self._members:
            if (failure := member.recv()) is not None:
                raise RuntimeError(failure)


@cache
def _team(n_processes: int) -> _Team:
    return _Team(n_processes)


def _follow(number: int, n_processes: int, port: int, connection: Connection) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.dup2(2, 1)  # gloo prints, and the measuring process answers there
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_num_cpu_devices", _N_DEVICES // n_processes)
    jax.distributed.initialize(f"127.0.0.1:{port}", n_processes, number, shutdown_timeout_seconds=1)
    while True:
        try:
            step, args = connection.recv()
        except EOFError:
            os._exit(0)
        try:
            step(*args)
        except Exception as error:  # noqa: BLE001 - the measuring process raises it
            connection.send(f"process {number}: {type(error).__name__}: {error}")
        else:
            connection.send(None)


def _mesh(shape: tuple[int, int]) -> Any:
    import jax
    import numpy as np

    return jax.sharding.Mesh(np.array(jax.devices()).reshape(shape), ("x", "y"))


def _shardings(width: int, shape: tuple[int, int]) -> dict[str, Any]:
    """Return the shapes of parameters and of the optimizer's moments, each cut along both dimensions of the mesh."""
    import jax

    cut = jax.sharding.NamedSharding(_mesh(shape), jax.sharding.PartitionSpec("x", "y"))
    leaf = jax.ShapeDtypeStruct((width, width), "float32", sharding=cut)
    layers = {f"layer_{number}": {"kernel": leaf} for number in range(21)}
    return {"params": layers, "mu": layers, "nu": layers}


@cache
def _state(width: int, shape: tuple[int, int]) -> Any:
    import jax
    import numpy as np

    numbers = np.random.default_rng(0).standard_normal((width, width), np.float32)

    def array(leaf: Any) -> Any:
        return jax.make_array_from_callback(leaf.shape, leaf.sharding, lambda index: numbers[index].copy())

    return jax.tree.map(array, _shardings(width, shape))


def _manager(way: str, path: str) -> Any:
    module = importlib.import_module(_MODULES[way])
    options = module.CheckpointManagerOptions(enable_async_checkpointing=False)
    return module, module.CheckpointManager(path, options=options)


def _save(way: str, width: int, shape: tuple[int, int], path: str) -> None:
    module, manager = _manager(way, path)
    with manager:
        manager.save(_STEP, args=module.args.StandardSave(_state(width, shape)))


def _restore(way: str, width: int, shape: tuple[int, int], path: str) -> None:
    import jax

    module, manager = _manager(way, path)
    with manager:
        jax.block_until_ready(manager.restore(_STEP, args=module.args.StandardRestore(_shardings(width, shape))))


class _Run:
    """The state, and where each way saves it."""

    def __init__(self, place: Place) -> None:
        self.folder = place.folder / "meshes"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.width = place.size(2000, 64)
        self.n_savers = place.size(4, 2)

    def path_of(self, way: str) -> Path:
        return self.folder / way

    def clear(self) -> None:
        """Start with an empty directory."""
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        os.sync()

    def save(self, way: str) -> None:
        """Save by rows."""
        _team(self.n_savers).do(_save, way, self.width, (4, 1), str(self.path_of(way)))

    def restore(self, way: str) -> None:
        """Restore on two processes, in tiles."""
        _team(2).do(_restore, way, self.width, (2, 2), str(self.path_of(way)))


def _made(place: Place) -> _Run:
    run = _Run(place)
    _team(run.n_savers).do(_make, run.width)
    return run


def _make(width: int) -> None:
    _state(width, (4, 1))


def _saved(place: Place) -> _Run:
    run = _Run(place)
    for way in _MODULES:
        if not run.path_of(way).exists():
            run.save(way)
    return run


def _saving(way: str, name: str) -> Contender:
    return Contender(name, lambda run: run.save(way))


def _restoring(way: str, name: str) -> Contender:
    return Contender(name, lambda run: run.restore(way))


CASES = (
    Case(
        name="meshes/save",
        title="1.0 GB training state of jax, F32, saved by 4 processes with a quarter of the rows each",
        prepare=_made,
        ours=_saving("tensorkeep", "tensorkeep"),
        peers=(_saving("orbax", "orbax CheckpointManager"),),
        target=AtLeast(1.0),
        before=_Run.clear,
        rounds=3,
        has_memory=False,
        remark="One program for both: the manager of `tensorkeep.integrations.orbax` and orbax's own, in the "
        "foreground. Both wait until their files are on disk.",
        company="jax",
    ),
    Case(
        name="meshes/restore",
        title="the same, restored by 2 processes in tiles of another mesh",
        prepare=_saved,
        ours=_restoring("tensorkeep", "tensorkeep"),
        peers=(_restoring("orbax", "orbax CheckpointManager"),),
        target=AtLeast(1.0),
        rounds=3,
        has_memory=False,
        remark="Each from its own files, in the page cache.",
        company="jax",
    ),
)
