"""Devices of torch that there are here (imports torch)."""

from __future__ import annotations

from typing import Any

import torch

from tensorkeep.errors import UnsupportedError


def check_device(device: Any) -> torch.device:
    """Return a device that tensors can be on here."""
    try:
        return torch.empty(0, device=device).device  # "cuda" is "cuda:0" now
    except (RuntimeError, AssertionError, TypeError) as error:
        n_cuda = torch.cuda.device_count()
        here = ["cpu", *(f"cuda:{index}" for index in range(n_cuda))]
        here += ["mps"] if torch.backends.mps.is_available() else []
        raise UnsupportedError(
            f"torch has no device {str(device)!r:.100} here",
            expected=" or ".join(here),
        ) from error
