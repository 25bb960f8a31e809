"""The device of these tests: the first GPU.

With TENSORKEEP_STAND_IN=1 it is the CPU by another name, so that the tests themselves can be tested without a GPU.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

IS_STAND_IN = os.environ.get("TENSORKEEP_STAND_IN") == "1"
DEVICE = torch.device("cpu" if IS_STAND_IN else "cuda", 0)

if IS_STAND_IN:
    import tensorkeep.torch as like_safetensors
    from tensorkeep.arrays.torch import streams
    from tensorkeep.compat import _safe_open
    from tests.support.tensors.late_device import CpuStreams

    def nothing(*_: Any) -> int:
        """Do nothing, and count no bytes."""
        return 0

    streams.STREAMS["cpu"] = CpuStreams
    for module in (like_safetensors, _safe_open):
        setattr(module, "check_device", lambda device, library: device)  # noqa: B010 - mypy
    for name in ("synchronize", "empty_cache", "memory_allocated", "max_memory_allocated", "reset_peak_memory_stats"):
        setattr(torch.cuda, name, nothing)
    torch.cuda.Stream, torch.cuda.stream = CpuStreams.Stream, CpuStreams.stream
elif not torch.cuda.is_available():
    pytest.exit("torch sees no CUDA device, which these tests need", returncode=1)
