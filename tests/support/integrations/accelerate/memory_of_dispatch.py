"""Measures the memory that loading takes, for `test_accelerate_dispatch`: `memory_of_dispatch.py FOLDER`.

Prints the highest number of bytes that each way took of memory of its own, not counting pages of files.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from accelerate import init_empty_weights
from torch import nn

import tensorkeep
from tensorkeep.integrations.accelerate import load_checkpoint_and_dispatch

WIDTH = 1024
N_LAYERS = 48


def make_model() -> nn.Module:
    with init_empty_weights():
        return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(N_LAYERS)))


def own_nbytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def peak_of(action: Callable[[], object]) -> int:
    before, peak, is_done = own_nbytes(), 0, False

    def watch() -> None:
        nonlocal peak
        while not is_done:
            peak = max(peak, own_nbytes())
            time.sleep(0.0005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    kept = action()
    peak = max(peak, own_nbytes())
    is_done = True
    watcher.join()
    del kept
    return peak - before


@torch.inference_mode()  # else the graph of a call keeps the weights of all layers
def main(folder: str) -> None:
    """Save a model in shards, and load it in each way."""
    if hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(-3, 2**20)  # M_MMAP_THRESHOLD: what is freed goes back to the system, and does not count
    torch.set_num_threads(1)
    path = f"{folder}/model"
    state = {f"{n}.weight": torch.randn(WIDTH, WIDTH) / 50 for n in range(N_LAYERS)}
    tensorkeep.save_checkpoint(state, path, max_shard_size="40MB")
    size = sum(value.nbytes for value in state.values())
    del state
    inputs = torch.ones(2, WIDTH)
    for warm_up in (torch.float32, torch.bfloat16):
        nn.Linear(WIDTH, WIDTH, dtype=warm_up)(inputs.to(warm_up))
    model = load_checkpoint_and_dispatch(make_model(), path, {"": "disk"})
    half = load_checkpoint_and_dispatch(make_model(), path, {"": "disk"}, dtype="bfloat16")
    ways: dict[str, Callable[[], object]] = {
        "cpu": lambda: load_checkpoint_and_dispatch(make_model(), path, {"": "cpu"}),
        "bfloat16": lambda: load_checkpoint_and_dispatch(make_model(), path, {"": "cpu"}, dtype="bfloat16"),
        "disk": lambda: load_checkpoint_and_dispatch(make_model(), path, {"": "disk"}, verify=True),
        "disk, called": lambda: model(inputs),
        "disk, bfloat16, called": lambda: half(inputs.bfloat16()),
    }
    print(json.dumps({"model": size} | {name: peak_of(way) for name, way in ways.items()}))


if __name__ == "__main__":
    main(sys.argv[1])
