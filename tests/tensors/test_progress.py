"""What a load says while it is under way: bytes of the files, batch by batch, up to the total."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.store import CheckpointStore
from tests.support.pickles.honest_files import saved

N = 9 * 2**20  # elements: 36 MiB, so that two fill a batch


class Heard:
    """A progress callback that keeps what it hears."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def __call__(self, done: int, total: int) -> None:
        self.calls.append((done, total))


def state() -> dict[str, Any]:
    shared = torch.ones(N)
    return {"a": torch.zeros(N), "b": torch.ones(N), "tied": [shared, shared[: N // 2]], "step": 5}


@pytest.mark.parametrize("form", ["file", "shards", "pickle"])
def test_each_batch_is_reported(tmp_path: Path, form: str) -> None:
    target: Any = tmp_path / "state"
    if form == "file":
        tensorkeep.save(state(), target)
    elif form == "shards":
        tensorkeep.save_checkpoint(state(), target, max_shard_size="40MB")
    else:
        target = saved(state())
    for backend in ("mmap", "pread"):
        heard = Heard()
        loaded = tensorkeep.load(target, progress=heard, backend=backend, framework="torch")
        assert [done // 2**20 for done, _ in heard.calls] == [36, 72, 108]
        assert {total for _, total in heard.calls} == {3 * 4 * N}
        assert loaded["tied"][0][:2].tolist() == loaded["b"][:2].tolist() == [1, 1]
        assert loaded["tied"][0].data_ptr() == loaded["tied"][1].data_ptr()
        loaded = None  # frees memory

        part = Heard()
        tensorkeep.load(target, only=["a", "step"], progress=part, backend=backend)
        assert part.calls == [(4 * N, 4 * N)]

        made = Heard()
        with tensorkeep.open(target, framework="torch", backend=backend) as file:
            tensorkeep.materialize(file.tree, progress=made)
        assert [done // 2**20 for done, _ in made.calls] == [36, 72, 108]


def test_an_error_of_the_callback_ends_the_load(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(5))

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tensorkeep.load(tmp_path / "a.npy", progress=stop)


def test_a_store_reports_its_verification_and_the_load(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "run")
    store.save(1, {"w": torch.ones(5)})
    heard = Heard()
    store.load(progress=heard)
    assert heard.calls[-1] == (20, 20)
    assert len([call for call in heard.calls if call[0] == call[1]]) == 2
