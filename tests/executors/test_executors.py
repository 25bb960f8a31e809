"""Work in executors: the same results as without, lost workers, failures, and what workers must see."""

from __future__ import annotations

import os
import shutil
import signal
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint

import tensorkeep
from tensorkeep.encryption import Key
from tensorkeep.errors import IntegrityError, SourceChangedError, SourceMissingError, TransportError, UnsupportedError
from tensorkeep.executors import run_in
from tensorkeep.kinds.origins import SourceToOpen
from tensorkeep.server import Server
from tensorkeep.transport import HandedOver, open_source
from tests.support.odd_executor import OddExecutor

PLAN = {"layer.*": "rowwise"}


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        yield executor


@pytest.fixture
def model(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    arrays = {f"layer.{number}.weight": random.standard_normal((64, 32)).astype(np.float32) for number in range(12)}
    tensorkeep.save_checkpoint({**arrays, "empty": np.zeros((0, 3))}, tmp_path / "model", max_shard_size=30_000)
    return tmp_path / "model"


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def test_everything_is_the_same_as_without_an_executor(pool: Executor, model: Path, tmp_path: Path) -> None:
    state = {name: torch.tensor(array) for name, array in tensorkeep.load(model).items()}
    torch.save(state, tmp_path / "model.pt")
    seen: list[tuple[int, int]] = []

    def both(work: Any) -> None:
        done = [work(tmp_path / str(number), how) for number, how in enumerate(({}, {"executor": pool}))]
        assert done[0] == done[1]
        if (tmp_path / "0").exists():
            assert files_of(tmp_path / "0") == files_of(tmp_path / "1")
            shutil.rmtree(tmp_path / "0")
            shutil.rmtree(tmp_path / "1")

    both(lambda _, how: tensorkeep.verify(model, **how))
    both(lambda _, how: tensorkeep.verify(model, progress=lambda *done: seen.append(done), **how))
    both(lambda out, how: tensorkeep.reshard(model, out, max_shard_size=50_000, **how))
    both(lambda out, how: tensorkeep.reshard(model, out, cast="bf16", max_shard_size=50_000, sha256=True, **how))
    both(lambda out, how: tensorkeep.reshard(model, out, split_large=True, max_shard_size=5_000, **how))
    both(lambda out, how: tensorkeep.join([model], out, rename=lambda name: f"x.{name}", **how))
    both(lambda out, how: tensorkeep.reshard_for_ranks(model, out, 2, plan={"layer.*": "rowwise"}, **how))
    both(lambda out, how: tensorkeep.convert(tmp_path / "model.pt", out, **how).n_tensors)
    both(lambda _, how: tensorkeep.scan(tmp_path, **how))
    both(lambda _, how: tensorkeep.check(model, data=True, **how))
    assert seen[-1][0] == seen[-1][1]


def test_tasks_may_run_late_in_any_order_and_lose_their_results(model: Path, tmp_path: Path) -> None:
    def run(work: Any) -> dict[str, int]:
        executor = OddExecutor(lose=frozenset({0}))
        work(tmp_path / "here", {})
        work(tmp_path / "elsewhere", {"executor": executor})
        assert files_of(tmp_path / "elsewhere") == files_of(tmp_path / "here")
        shutil.rmtree(tmp_path / "here")
        shutil.rmtree(tmp_path / "elsewhere")
        assert executor.nbytes < 10_000
        return dict(executor.tasks)

    tensorkeep.reshard_for_ranks(model, tmp_path / "ranks", 2, plan=PLAN)
    tensors = {name: torch.tensor(array) for name, array in tensorkeep.load(model).items()}
    with warnings.catch_warnings(action="ignore"):
        torch.distributed.checkpoint.save(tensors, checkpoint_id=tmp_path / "dcp", no_dist=True)

    assert run(lambda out, how: tensorkeep.reshard(model, out, **how)) == {"CopyTask": 2}
    made = run(lambda out, how: tensorkeep.reshard(model, out, cast="bf16", seed=1, rename=str.upper, **how))
    assert made == {"SumTask": 5, "MakeTask": 1}
    made = run(lambda out, how: tensorkeep.reshard(tmp_path / "ranks", out, **how))
    assert made == {"SumTask": 3, "CopyTask": 1, "MakeTask": 1}
    assert run(lambda out, how: tensorkeep.convert(tmp_path / "dcp", out, **how)) == {"MakeTask": 2, "SumTask": 1}
    assert run(lambda out, how: tensorkeep.reshard_for_ranks(model, out, 2, plan=PLAN, **how)) == {"FillTask": 2}


def test_a_result_that_is_always_lost_ends_the_work(model: Path, tmp_path: Path) -> None:
    with pytest.raises(TransportError, match=r"lost a worker.*the result was lost"):
        tensorkeep.reshard(model, tmp_path / "out", executor=OddExecutor(lose=frozenset(range(3))))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_damage_is_found_wherever_it_is_summed(pool: Executor, model: Path, tmp_path: Path) -> None:
    file = sorted(model.glob("*.safetensors"))[1]
    content = bytearray(file.read_bytes())
    content[-9] ^= 1
    file.write_bytes(content)

    assert tensorkeep.verify(model, executor=pool) == tensorkeep.verify(model)
    assert not tensorkeep.verify(model, executor=pool).is_whole
    with pytest.raises(IntegrityError, match="not those that were saved"):
        tensorkeep.reshard_for_ranks(model, tmp_path / "out", 2, plan={"layer.*": "rowwise"}, executor=pool)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_a_broken_pool_changes_nothing(model: Path, tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        os.kill(executor.submit(os.getpid).result(), signal.SIGKILL)
        for work in (
            lambda: tensorkeep.verify(model, executor=executor),
            lambda: tensorkeep.reshard(model, tmp_path / "out", executor=executor),
            lambda: tensorkeep.reshard_for_ranks(
                model, tmp_path / "out", 2, plan={"*": "replicate"}, executor=executor
            ),
        ):
            with pytest.raises(TransportError, match="lost a worker"):
                work()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def end(_: int) -> None:
    os._exit(1)


def test_a_task_that_ends_every_worker_is_given_up() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor,
        pytest.raises(TransportError, match="lost"),
    ):
        run_in(executor, end, [1], lambda *_: None)


def test_the_first_failure_cancels_what_has_not_begun() -> None:
    begun: list[int] = []

    def work(number: int) -> None:
        begun.append(number)
        time.sleep(0.01)
        if number == 1:
            raise ValueError("one")

    with ThreadPoolExecutor(1) as executor, pytest.raises(ValueError, match="one"):
        run_in(executor, work, list(range(100)), lambda *_: None)
    assert len(begun) < 50


def test_an_exception_from_progress_ends_the_work(pool: Executor, model: Path, tmp_path: Path) -> None:
    def stop(*_: int) -> None:
        raise KeyboardInterrupt

    for work in (
        lambda: tensorkeep.verify(model, executor=pool, progress=stop),
        lambda: tensorkeep.reshard(model, tmp_path / "out", executor=pool, progress=stop),
    ):
        with pytest.raises(KeyboardInterrupt):
            work()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    assert tensorkeep.verify(model, executor=pool).is_whole


def test_workers_must_see_the_same_file(model: Path) -> None:
    file = HandedOver.of(open_source(str(next(model.glob("*.safetensors")))))
    assert file is not None
    with file.opened() as source:
        assert source.nbytes == file.nbytes
    os.utime(file.path, ns=(0, 0))
    with pytest.raises(SourceChangedError, match="All workers must see"), file.opened():
        pass
    os.unlink(file.path)
    with pytest.raises(SourceMissingError, match="All workers must see"), file.opened():
        pass


def test_workers_must_see_the_same_checkpoint(model: Path, tmp_path: Path) -> None:
    with tensorkeep.open(model) as opened:
        source = SourceToOpen.of(opened, str(model))
    source.opened().close()
    os.utime(next(model.glob("*.safetensors")), ns=(0, 0))
    with pytest.raises(SourceChangedError, match="All workers must see"):
        source.opened()


def test_workers_download(pool: Executor, model: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with Server(tmp_path, port=0) as server:
        tensorkeep.fetch(f"{server.url}model/", tmp_path / "here")
        tensorkeep.fetch(
            f"{server.url}model/", tmp_path / "copy", executor=pool, progress=lambda *done: seen.append(done)
        )
        assert tensorkeep.verify(f"{server.url}model/", executor=pool).is_whole
    assert files_of(tmp_path / "copy") == files_of(tmp_path / "here")
    assert seen[-1][0] == seen[-1][1]


def test_workers_write_to_directories_only(pool: Executor, model: Path) -> None:
    with pytest.raises(UnsupportedError, match="a directory on disk"):
        tensorkeep.reshard(model, "memory://executors/out", executor=pool)


def test_workers_do_not_encrypt(pool: Executor, model: Path, tmp_path: Path) -> None:
    key = Key(bytes(range(32)))
    with pytest.raises(UnsupportedError, match="no encryption"):
        tensorkeep.reshard(model, tmp_path / "out", executor=pool, encrypt=key)
    assert not (tmp_path / "out").exists()
    tensorkeep.reshard(model, tmp_path / "secret", encrypt=key)
    assert tensorkeep.verify(tmp_path / "secret", key=key, executor=pool).is_whole
    tensorkeep.reshard(tmp_path / "secret", tmp_path / "plain", key=key, executor=pool)
    assert tensorkeep.diff(model, tmp_path / "plain").is_equal
