"""Under a policy, workers read what was signed, even if a file is swapped after this process has opened it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import tensorkeep
from tensorkeep.errors import IntegrityError, SourceChangedError, TrustError
from tensorkeep.server import Server
from tensorkeep.signing import PrivateKey, sign
from tensorkeep.tensors import TensorView
from tensorkeep.trust import Policy, Rule

KEY = PrivateKey.generate()
POLICY = Policy((Rule(keys=(KEY.public,), partial=True),))
ONES, TWOS = np.ones((64, 32), np.float32), np.full((64, 32), 2, np.float32)


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        yield executor


class During(Executor):
    """Hands tasks to a pool; calls a function before each task begins and another one when it is done."""

    def __init__(self, pool: Executor, before: Callable[[], None], after: Callable[[], None]) -> None:
        self.n_tasks = 0
        self._pool = pool
        self._before = before
        self._after = after

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.n_tasks += 1
        self._before()
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()

        def finish(done: Future[Any]) -> None:
            self._after()
            error = done.exception()
            if error is None:
                future.set_result(done.result())
            else:
                future.set_exception(error)

        self._pool.submit(fn, *args, **kwargs).add_done_callback(finish)
        return future


def swapping(pool: Executor, path: Path, other: bytes) -> During:
    """Return an executor during whose tasks another file of the same size and time is in the place of one."""
    kept = path.with_name(f".{path.name}.kept")

    def swap() -> None:
        if not kept.exists():
            times = path.stat().st_mtime_ns
            os.rename(path, kept)
            path.write_bytes(other)
            os.utime(path, ns=(times, times))

    def restore() -> None:
        if kept.exists():
            os.replace(kept, path)

    return During(pool, swap, restore)


def with_twos(content: bytes) -> bytes:
    assert content.count(ONES.tobytes()) == 1
    return content.replace(ONES.tobytes(), TWOS.tobytes())


def save_sealed(path: Path) -> None:
    tensorkeep.save({"w": ONES}, path)


def save_plain(path: Path) -> None:
    save_file({"w": ONES}, path)


@pytest.mark.parametrize("save", [save_sealed, save_plain])
@pytest.mark.parametrize("cast", [None, "bf16"])
@pytest.mark.parametrize("write", [tensorkeep.reshard, tensorkeep.convert])
def test_what_workers_write_was_signed(
    pool: Executor, tmp_path: Path, save: Callable[[Path], None], cast: str | None, write: Callable[..., Any]
) -> None:
    path = tmp_path / "w.safetensors"
    save(path)
    sign(path, KEY)
    executor = swapping(pool, path, with_twos(path.read_bytes()))

    try:
        write(path, tmp_path / "out", cast=cast, trust=POLICY, executor=executor)
    except (IntegrityError, SourceChangedError, TrustError):
        assert executor.n_tasks
    else:
        assert np.array_equal(tensorkeep.load(tmp_path / "out", framework="numpy")["w"].astype(np.float32), ONES)
    if write is tensorkeep.reshard:  # a conversion lets workers verify what it wrote
        assert bool(executor.n_tasks) == (save is save_sealed)


def test_views_of_what_was_opened_under_a_policy_are_proven_too(pool: Executor, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_plain(path)
    sign(path, KEY)
    executor = swapping(pool, path, with_twos(path.read_bytes()))

    with tensorkeep.open(path, trust=POLICY) as opened:
        tensorkeep.reshard(opened.select("w"), tmp_path / "out", executor=executor)

    assert np.array_equal(tensorkeep.load(tmp_path / "out")["w"], ONES)


@pytest.mark.parametrize("save", [save_sealed, save_plain])
def test_a_view_over_several_files_is_proven_too(
    pool: Executor, tmp_path: Path, save: Callable[[Path], None]
) -> None:
    path = tmp_path / "w.safetensors"
    save(path)
    sign(path, KEY)
    np.savez(tmp_path / "b.npz", b=ONES[0])
    sign(tmp_path / "b.npz", KEY)
    executor = swapping(pool, path, with_twos(path.read_bytes()))

    with tensorkeep.open(path, trust=POLICY) as one, tensorkeep.open(tmp_path / "b.npz", trust=POLICY) as other:
        view = TensorView({"w": one["w"], "b": other["b"]}, path="both")
        tensorkeep.reshard(view, tmp_path / "out", executor=executor)

    assert executor.n_tasks == 0, "only this process has proven the files"
    assert np.array_equal(tensorkeep.load(tmp_path / "out")["w"], ONES)


def test_a_file_that_is_replaced_while_a_view_of_it_is_written_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_plain(path)
    sign(path, KEY)
    other = with_twos(path.read_bytes())

    def swap(done: int, total: int) -> None:
        times = path.stat().st_mtime_ns
        with path.open("r+b") as file:
            file.write(other)
        os.utime(path, ns=(times, times))

    with tensorkeep.open(path, trust=POLICY) as opened:
        view = TensorView({"v": opened["w"]}, path="view")
        with pytest.raises(SourceChangedError, match="saved again while it was read"):
            tensorkeep.reshard(view, tmp_path / "out", progress=swap)
    assert not (tmp_path / "out").exists()


def test_an_archive_is_read_only_where_it_was_proven(pool: Executor, tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    np.savez(path, w=ONES)
    sign(path, KEY)
    executor = swapping(pool, path, with_twos(path.read_bytes()))

    tensorkeep.convert(path, tmp_path / "out", check=False, cast="f64", trust=POLICY, executor=executor)

    assert np.array_equal(tensorkeep.load(tmp_path / "out")["w"], ONES)


@pytest.mark.parametrize("save", [save_sealed, save_plain])
@pytest.mark.parametrize("name", ["check", "reshard_for_ranks"])
def test_what_the_environment_demands_holds_for_workers(
    pool: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Callable[[Path], None], name: str
) -> None:
    path = tmp_path / "model" / "model.safetensors"
    path.parent.mkdir()
    save(path)
    sign(path.parent, KEY)
    (tmp_path / "k.pub").write_bytes(KEY.public.pem())
    monkeypatch.setenv("TENSORKEEP_TRUST", str(tmp_path / "k.pub"))
    zeros = path.read_bytes().replace(ONES.tobytes(), bytes(ONES.nbytes))
    executor = swapping(pool, path, zeros)

    try:
        if name == "check":
            report = tensorkeep.check(path.parent, data=True, executor=executor)
            assert "all-zero" not in {finding.code for finding in report.findings}
        else:
            tensorkeep.reshard_for_ranks(path.parent, tmp_path / "out", 2, plan={"w": "colwise"}, executor=executor)
            monkeypatch.delenv("TENSORKEEP_TRUST")
            assert tensorkeep.load(tmp_path / "out")["w"].min() == 1
    except (IntegrityError, SourceChangedError, TrustError):
        assert executor.n_tasks
    assert bool(executor.n_tasks) == (save is save_sealed)


def test_a_file_that_was_proven_whole_may_not_change_before_the_commit(pool: Executor, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_plain(path)
    sign(path, KEY)
    other, before = with_twos(path.read_bytes()), path.stat()

    def change(*_: int) -> None:
        if path.read_bytes() != other:
            path.write_bytes(other)
            os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))

    with pytest.raises(SourceChangedError):
        tensorkeep.reshard(path, tmp_path / "out", trust=POLICY, progress=change)
    assert not list(tmp_path.glob("out/*.safetensors"))


def test_verify_compares_what_workers_sum_with_what_was_signed(pool: Executor, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_plain(path)
    sign(path, KEY)
    content = path.read_bytes()

    assert tensorkeep.verify(path, trust=POLICY, executor=pool).is_whole
    executor = swapping(pool, path, with_twos(content))
    assert not tensorkeep.verify(path, trust=POLICY, executor=executor).is_whole
    assert tensorkeep.verify(path, trust=POLICY, executor=pool).is_whole


def test_what_workers_fetch_is_compared_when_it_has_come(pool: Executor, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    large = np.random.default_rng(0).random(2**20)  # not what comes with the first request
    tensorkeep.save_checkpoint({"w": large}, tmp_path / "site" / "ckpt")
    sign(tmp_path / "site" / "ckpt", KEY)
    staged = tmp_path / "there"
    last = min((tmp_path / "site" / "ckpt").glob("*.safetensors")).read_bytes()[-16:]
    damaged: list[Path] = []

    def damage() -> None:
        files = [path for path in tmp_path.rglob("*") if path.is_file() and "site" not in path.parts]
        for file in files:
            content = file.read_bytes()
            if content.endswith(last) and len(content) > 1000:
                file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
                damaged.append(file)

    with Server(tmp_path / "site", port=0) as server:
        with pytest.raises(IntegrityError):
            tensorkeep.fetch(f"{server.url}ckpt/", staged, trust=POLICY, executor=During(pool, lambda: None, damage))
        assert damaged
        assert not list(staged.glob("*.safetensors"))
        tensorkeep.fetch(f"{server.url}ckpt/", staged, trust=POLICY, executor=pool)
    assert tensorkeep.verify(staged, trust=POLICY).is_whole
