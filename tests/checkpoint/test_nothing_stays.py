"""What was read or saved is let go of at once, not when the garbage collector comes round."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tensorkeep

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what is open")


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held(directory: Path) -> list[str]:
    """Return the files of a directory that this process has open or mapped."""
    descriptors = []
    for number in os.listdir("/proc/self/fd"):
        try:
            descriptors.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:  # that of the listing itself
            continue
    mapped = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    return [path for path in descriptors + mapped if path.startswith(str(directory))]


def state() -> dict[str, object]:
    weights = {f"w{number}": np.full(10_000, number, np.int64) for number in range(4)}
    return {"model": weights, "step": 3, "keys": {(1, 2): [None]}, "tied": weights["w1"]}


def test_saving_verifying_and_loading(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoint"
    tensorkeep.save_checkpoint(state(), directory, max_shard_size=80_000)
    assert tensorkeep.verify(directory).is_whole
    tensorkeep.save(state(), tmp_path / "file.safetensors")
    assert not held(tmp_path)

    for path in (directory, tmp_path / "file.safetensors"):
        assert tensorkeep.load(path)["step"] == 3
        assert not held(tmp_path)

        opened = tensorkeep.open(path)
        tree = opened.tree
        assert held(tmp_path)
        del opened, tree
        assert not held(tmp_path)


def test_a_save_that_fails(tmp_path: Path) -> None:
    def fail(done: int, total: int) -> None:
        raise RuntimeError(f"{done} of {total}")

    saved = state()
    tensor = weakref.ref(saved["model"]["w1"])
    with pytest.raises(RuntimeError):
        tensorkeep.save_checkpoint(saved, tmp_path / "checkpoint", max_shard_size=80_000, progress=fail)
    del saved

    assert not held(tmp_path)
    assert tensor() is None


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    saved = state()
    tensor = weakref.ref(saved["model"]["w1"])
    with pytest.raises(FileNotFoundError):
        tensorkeep.save(saved, tmp_path / "missing" / "file.safetensors")
    with pytest.raises(FileNotFoundError):
        tensorkeep.load(tmp_path / "missing.safetensors")
    del saved

    assert tensor() is None
