"""The devices that jax has on this machine (imports jax)."""

from __future__ import annotations

import re
from typing import Any

import jax

from tensorkeep.errors import DeviceError


def jax_device(device: Any) -> Any:
    """Return the `jax.Device` for a name such as `"gpu:1"`; a Device or Sharding is itself, None jax's default."""
    if device is None:
        return jax.config.jax_default_device or jax.local_devices()[0]  # type: ignore[attr-defined]
    if isinstance(device, jax.Device | jax.sharding.Sharding):
        return device
    found = re.fullmatch(r"([a-z]+)(?::(\d{1,6}))?", str(device))
    try:
        if found is not None:
            return jax.local_devices(backend=found[1])[int(found[2] or 0)]
    except (RuntimeError, IndexError):
        pass
    raise DeviceError(
        f"jax has no device {str(device)!r:.100} here",
        expected="a jax.Device, a jax.sharding.Sharding, or one of "
        + ", ".join(f'"{known.platform}:{place}"' for place, known in enumerate(jax.local_devices())),
    )


def cpu_device() -> Any:
    """Return jax's first CPU device here; None if jax was set up without the CPU, as by `JAX_PLATFORMS=cuda`."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def is_on_cpu(device: Any) -> bool:
    """Say whether a Device or all devices of a Sharding are the CPU."""
    devices: set[Any] = device.device_set if isinstance(device, jax.sharding.Sharding) else {device}
    return all(known.platform == "cpu" for known in devices)
