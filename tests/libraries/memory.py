"""Tensors over memory at chosen addresses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorkeep
from tensorkeep.arrays import adapter_for, tensor_to_write
from tensorkeep.dtypes import BY_NAME
from tensorkeep.entries import TensorEntry

ADDRESSES = (0, 4, 8, 16, 32, 64, 100, 128, 4096)


def over_memory(framework: str, dtype: str, offset: int) -> tuple[Any, bool]:
    """Return a tensor of 24 ones over memory at a multiple of 4,096 and an offset, and whether it is there."""
    row = BY_NAME[dtype]
    memory = np.zeros(3 * 4096, np.uint8)
    start = -memory.ctypes.data % 4096 + offset
    ones = np.ones(24, ml_dtypes.bfloat16 if dtype == "BF16" else row.numpy)
    memory[start : start + ones.nbytes] = ones.view(np.uint8)
    entry = TensorEntry(dtype, (2, 3, 4), (0, ones.nbytes))
    tensor = adapter_for(framework).views(memory.data, {"w": entry}, start)["w"]
    extent = tensor_to_write(tensor, "w").extent()
    assert extent is not None
    return tensor, extent.start == memory.ctypes.data + start


def mapped_ranges(path: str) -> list[tuple[int, int]]:
    """Return the addresses at which this process has mapped a file."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        fields = [line.split(maxsplit=5) for line in maps if line.rstrip().endswith(path)]
    return [(int(start, 16), int(stop, 16)) for start, stop in (field[0].split("-") for field in fields)]


def check_explained(framework: str, path: Path) -> Counter[str]:
    """Check that `load` treats a file's tensors as `explain` says; return how often it gives each answer."""
    arrays = {
        "even": np.ones(4096, np.float32),
        "large": np.ones(2**18 + 1, np.float32),
        "half": np.ones(64, ml_dtypes.bfloat16),
        "narrow": np.ones(64, ml_dtypes.float8_e4m3fn),
        "packed": np.ones(64, ml_dtypes.float4_e2m1fn),
        "odd": np.ones(7, np.float32),
        "long": np.arange(2**15),
    }
    outcomes: Counter[str] = Counter()
    for align in (8, 64):
        tensorkeep.save(arrays, path, align=align)
        with tensorkeep.open(path, framework=framework) as file:
            uses = file.explain(framework)
            kept = {name: use for name, use in uses.items() if use.outcome != "refused"}
            for name in uses.keys() - kept.keys():
                with pytest.raises(tensorkeep.TensorkeepError, match="no dtype"):
                    file[name].load()
            loaded = file.load(kept)
            ranges = mapped_ranges(str(path))
            for name, use in kept.items():
                extent = tensor_to_write(loaded[name], name).extent()
                assert extent is not None
                is_shared = any(start <= extent.start < stop for start, stop in ranges)
                assert is_shared == (use.outcome == "shared"), (align, name, use)
                assert use.nbytes == file[name].nbytes
                outcomes[use.outcome] += 1
    return outcomes
