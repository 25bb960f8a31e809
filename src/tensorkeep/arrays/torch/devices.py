"""The devices that torch has on this machine (imports torch)."""

from __future__ import annotations

from typing import Any, Final

import torch

from tensorkeep.errors import DeviceError

NO_DEVICE: Final = (RuntimeError, AssertionError, TypeError, ImportError)
"""What torch raises for a device that it does not know, was built without, or does not find."""


def check_device(device: Any) -> torch.device:
    """Return a device in full (`"cuda"` becomes `cuda:0`), or refuse one that is not here."""
    try:
        return torch.empty(0, device=device).device
    except NO_DEVICE as error:
        n_cuda = torch.cuda.device_count()
        here = ["cpu", *(f"cuda:{index}" for index in range(n_cuda))]
        here += ["mps"] if torch.backends.mps.is_available() else []
        raise DeviceError(
            f"torch has no device {str(device)!r:.100} here",
            expected=" or ".join(here),
            found=str(error).partition("\n")[0][:200],
        ) from error
