"""Real processes in real process groups, which stay alive from one test to the next.

Each call makes a new gloo group of as many ranks as it wants. Processes come from a fork server that has imported
everything, so that a new one, in the place of one that was killed, costs little.
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any, Self

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from tensorkeep.integrations.distributed import TensorkeepReader, TensorkeepWriter

__all__ = ["FailedRank", "Killed", "Ranks", "load", "save"]

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "tensorkeep.integrations.distributed",
])
_TIMEOUT_S = 20


class FailedRank(Exception):
    """What a rank raised, with its traceback as text."""


class Killed(Exception):
    """A rank's process ended."""


class Ranks:
    """Up to `n_ranks` processes."""

    def __init__(self, n_ranks: int = 4) -> None:
        self._n_ranks = n_ranks
        self._workers: dict[int, tuple[Any, Connection]] = {}
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._n_calls = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process, connection in self._workers.values():
            connection.close()
            process.join(10)
            process.kill()

    def start(
        self, function: Callable[..., Any], *args: Any, world: int | None = None, timeout_s: float = _TIMEOUT_S
    ) -> None:
        """Call `function(rank, *args)` on ranks 0 … world - 1."""
        self._n_calls += 1
        self._running = list(range(world or self._n_ranks))
        for rank in self._running:
            call = (function, args, rank, len(self._running), self._store.port, self._n_calls, timeout_s)
            self._worker(rank)[1].send(call)

    def kill(self, rank: int) -> None:
        """End a process at once; if it has done its work by then, its result counts."""
        process, _ = self._workers[rank]
        process.kill()
        process.join()

    def results(self) -> list[Any]:
        """Wait for what was started: for each rank its result, or `FailedRank` or `Killed`."""
        results: dict[int, Any] = {}
        waiting = {self._workers[rank][1]: rank for rank in self._running}
        while waiting:
            for connection in wait(list(waiting), timeout=150) or _hanging(waiting, results):
                rank = waiting.pop(connection)
                try:
                    results[rank] = connection.recv()
                except (EOFError, ConnectionResetError):
                    process, _ = self._workers.pop(rank)
                    process.join()
                    results[rank] = Killed(rank, process.exitcode)
        for rank in [rank for rank, (process, _) in self._workers.items() if process.exitcode is not None]:
            self._workers.pop(rank)[1].close()
        return [results[rank] for rank in self._running]

    def run(
        self, function: Callable[..., Any], *args: Any, world: int | None = None, timeout_s: float = _TIMEOUT_S
    ) -> list[Any]:
        """Call `function(rank, *args)` on ranks 0 … world - 1, and return what they return."""
        self.start(function, *args, world=world, timeout_s=timeout_s)
        results = self.results()
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results

    def _worker(self, rank: int) -> tuple[Any, Connection]:
        if rank not in self._workers:
            ours, theirs = _CONTEXT.Pipe()
            process = _CONTEXT.Process(target=_work, args=(theirs,))
            process.start()
            theirs.close()
            self._workers[rank] = process, ours
        return self._workers[rank]


def _hanging(waiting: dict[Connection, int], results: dict[int, Any]) -> list[Connection]:
    """Fail; the cause is mostly another rank's error."""
    failed = {rank: result for rank, result in results.items() if isinstance(result, Exception)}
    raise AssertionError(f"ranks {sorted(waiting.values())} hang; of the others failed {failed}")


def _work(connection: Connection) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    while True:
        try:
            call = connection.recv()
        except EOFError:
            return
        connection.send(_called(*call))


def _called(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    rank: int,
    world: int,
    port: int,
    number: int,
    timeout_s: float,
) -> Any:
    store = dist.PrefixStore(str(number), dist.TCPStore("127.0.0.1", port, is_master=False))
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    try:
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=timeout_s)
        )
        return function(rank, *args)
    except BaseException:
        return FailedRank(f"rank {rank}: {traceback.format_exc()[-3000:]}")
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def save(state: Any, path: Any, **options: Any) -> None:
    dcp.save(state, storage_writer=TensorkeepWriter(path, **options))


def load(state: Any, path: Any, **options: Any) -> None:
    dcp.load(state, storage_reader=TensorkeepReader(path, **options))
