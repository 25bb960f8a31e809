"""Streaming uses the memory of one run for the next: the system gives new pages only at first."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tensorkeep

STREAM = """
import resource
import sys
import tensorkeep

opened = [tensorkeep.open(path, framework="numpy") for path in sys.argv[2:]]
view = tensorkeep.merging.average(*opened) if sys.argv[1] == "average" else opened[0].cast("f32").cast("bf16")
new = []
for _ in range(5):  # which thread computes a run, and so whose memory is used, depends on what else the machine does
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    nbytes = sum(memoryview(run).nbytes for run in view["w"].tensor_to_write().buffers())
    new.append((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * 4096 / nbytes)
print(min(new[1:]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep memory in other ways")
@pytest.mark.parametrize("way", ["average", "cast"])
def test_little_memory_is_new_to_the_process(way: str, tmp_path: Path) -> None:
    weights = np.zeros((4096, 4096), ml_dtypes.bfloat16)
    paths = [tmp_path / f"{name}.safetensors" for name in "abc"]
    for path in paths:
        tensorkeep.save({"w": weights}, path)

    done = subprocess.run([sys.executable, "-c", STREAM, way, *paths], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.5, "new bytes for each byte of the tensor; about 2 if each run gets new memory"
