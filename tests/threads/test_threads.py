"""Many threads at once on one open file, one store, and one path."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import BusyError

N_THREADS = 16
N_ROUNDS = 20


def at_once(work: Callable[[int], object]) -> list[object]:
    """Run something in many threads that start together; an error in one is raised."""
    ready = Barrier(N_THREADS)

    def start(number: int) -> object:
        ready.wait()
        return work(number)

    with ThreadPoolExecutor(N_THREADS) as threads:
        return list(threads.map(start, range(N_THREADS)))


def tensors_of(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {f"layers.{i}.weight": random.standard_normal((40 + i, 30)).astype(np.float32) for i in range(12)}


def save_npz(tensors: dict[str, np.ndarray], path: Path) -> Path:
    np.savez(path.with_suffix(".npz"), **tensors)
    return path.with_suffix(".npz")


def save_compressed(tensors: dict[str, np.ndarray], path: Path) -> Path:
    np.savez_compressed(path.with_suffix(".npz"), **tensors)
    return path.with_suffix(".npz")


def save_one(tensors: dict[str, np.ndarray], path: Path) -> Path:
    tensorkeep.save(tensors, path.with_suffix(".safetensors"))
    return path.with_suffix(".safetensors")


def save_shards(tensors: dict[str, np.ndarray], path: Path) -> Path:
    tensorkeep.save_checkpoint(tensors, path, max_shard_size="20kB")
    return path


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("save", [save_one, save_shards, save_npz, save_compressed])
def test_one_open_file(save: Callable[..., Path], backend: str, tmp_path: Path) -> None:
    expected = tensors_of(0)
    names = list(expected)
    with tensorkeep.open(save(expected, tmp_path / "model"), backend=backend) as opened:

        def read(number: int) -> None:
            random = np.random.default_rng(number)
            for _ in range(N_ROUNDS):
                name = names[random.integers(len(names))]
                start, stop = sorted(random.integers(0, 40, 2))
                np.testing.assert_array_equal(opened[name][start:stop, ::-1], expected[name][start:stop, ::-1])
                np.testing.assert_array_equal(opened.select(name)[name].load(), expected[name])

        at_once(read)


def test_one_verification_and_one_statistic_of_an_open_file(tmp_path: Path) -> None:
    path = save_shards(tensors_of(0), tmp_path / "model")

    assert all(at_once(lambda _: tensorkeep.verify(path).is_whole))
    assert len({str(each) for each in at_once(lambda _: tensorkeep.statistics(path))}) == 1


def test_one_path_holds_one_of_the_saves(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"

    at_once(lambda number: [tensorkeep.save(tensors_of(number), path, durable=False) for _ in range(3)])

    assert tensorkeep.verify(path).is_whole
    found = tensorkeep.load(path)
    assert any(equal(found, tensors_of(number)) for number in range(N_THREADS))
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_one_directory_holds_one_of_the_saves_and_others_are_told(tmp_path: Path) -> None:
    path = tmp_path / "model"

    def save(number: int) -> bool:
        try:
            tensorkeep.save_checkpoint(tensors_of(number), path, max_shard_size="20kB", durable=False)
        except BusyError:
            return False
        return True

    saved = at_once(save)

    assert any(saved)
    assert tensorkeep.verify(path).is_whole
    found = tensorkeep.load(path)
    assert any(equal(found, tensors_of(number)) for number in range(N_THREADS) if saved[number])


def test_one_store_takes_steps_from_many_threads_while_others_read(tmp_path: Path) -> None:
    store = tensorkeep.CheckpointStore(tmp_path / "run", keep_last=N_THREADS)
    store.save(1, {"step": 1, "model": tensors_of(1)})

    def work(number: int) -> None:
        step = number + 2
        if number % 2:
            assert store.load(1)["step"] == 1
            assert store.latest() is not None
        else:
            store.save(step, {"step": step, "model": tensors_of(step)})

    at_once(work)

    assert list(store.steps()) == [1, *range(2, N_THREADS + 2, 2)]
    for step in store.steps():
        state = store.load(step)
        assert state["step"] == step
        assert equal(state["model"], tensors_of(step))


def equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    return found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name]) for name in expected)
