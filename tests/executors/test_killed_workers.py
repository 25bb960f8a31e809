"""Work in a dask cluster of two processes, one of which is killed in the middle: results are the same as without."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from distributed import Client

import tensorkeep
from tensorkeep.executors import run_in
from tensorkeep.server import Server
from tests.support.dask_cluster import cluster


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster() as client:
        yield client


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint of 134 MB in eight shards, one of whose tensors has a NaN."""
    arrays = {f"{n}.up": np.full((2**11, 2**11), n, np.float32) for n in range(8)}
    arrays["7.up"][5, 5] = np.nan
    path = tmp_path_factory.mktemp("killed") / "big"
    tensorkeep.save_checkpoint(arrays, path, max_shard_size=2**24)
    return path


@pytest.fixture
def how(client: Client) -> Iterator[dict[str, Any]]:
    """Give an executor, and a progress that kills a worker once some of the work is done and not all of it."""
    killed: list[tuple[int, int]] = []

    def kill_one(done: int, total: int) -> None:
        if not killed and 0 < done < total:
            killed.append((done, total))
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

    client.wait_for_workers(2, timeout=60)
    yield {"executor": client.get_executor(), "progress": kill_one}
    assert killed


def test_a_checkpoint_for_ranks(big: Path, tmp_path: Path, how: dict[str, Any]) -> None:
    tensorkeep.reshard_for_ranks(big, tmp_path / "out", 2, plan={"*": "rowwise"}, durable=False, **how)

    assert tensorkeep.verify(tmp_path / "out").is_whole
    assert tensorkeep.diff(big, tmp_path / "out").is_equal


@pytest.mark.parametrize("options", [{}, {"cast": "bf16"}], ids=["copied", "computed"])
def test_a_checkpoint_in_other_shards(
    big: Path, tmp_path: Path, how: dict[str, Any], options: dict[str, Any]
) -> None:
    tensorkeep.reshard(big, tmp_path / "out", max_shard_size=2**25, durable=False, **options, **how)

    tensorkeep.reshard(big, tmp_path / "here", max_shard_size=2**25, durable=False, **options)
    assert contents_of(tmp_path / "out") == contents_of(tmp_path / "here")
    assert tensorkeep.verify(tmp_path / "out").is_whole


def test_a_download(big: Path, tmp_path: Path, how: dict[str, Any]) -> None:
    with Server(big.parent, port=0) as server:
        tensorkeep.fetch(f"{server.url}big/", tmp_path / "copy", **how)

    assert contents_of(tmp_path / "copy") == contents_of(big)


def test_a_conversion(tmp_path: Path, how: dict[str, Any]) -> None:
    state = {f"{n}.up": torch.full((2**11, 2**11), float(n)) for n in range(8)}
    torch.save(state, tmp_path / "big.pt")

    tensorkeep.convert(tmp_path / "big.pt", tmp_path / "out", max_shard_size=2**25, durable=False, **how)

    assert tensorkeep.verify(tmp_path / "out").is_whole
    loaded = tensorkeep.load(tmp_path / "out", framework="torch")
    assert loaded.keys() == state.keys()
    assert all(loaded[name].equal(state[name]) for name in state)


@pytest.mark.parametrize(
    "question", [tensorkeep.verify, lambda path, **how: tensorkeep.check(path, data=True, **how)]
)
def test_answers(big: Path, how: dict[str, Any], question: Callable[..., Any]) -> None:
    assert question(big, **how) == question(big)


def test_failures_of_a_task_are_its_own(client: Client) -> None:
    with pytest.raises(ZeroDivisionError):
        run_in(client.get_executor(), fail, [1, 0, 1], lambda *_: None)


def fail(number: int) -> float:
    return 1 / number


def contents_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}
