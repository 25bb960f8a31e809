"""jax.Arrays on the CPU over the memory of NumPy arrays.

`jax.device_put` does that too, in 35 microseconds for each array. What it calls in the end takes 5, but is not
public: `ARRAY_CLASS` and `_put` are all that is used of it, and without them everything works, only slower.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays.jax.devices import cpu_device

try:
    from jax._src.core import ShapedArray
    from jaxlib._jax import batched_device_put as _put
except ImportError:  # another version of jax
    _put = None

try:
    from jaxlib._jax import ArrayImpl

    ARRAY_CLASS: Any = ArrayImpl
except ImportError:
    ARRAY_CLASS = type(jax.device_put(np.zeros(0, np.float32), cpu_device()))


def over_memory(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Return jax.Arrays over the memory of arrays, whose addresses are multiples of 64.

    If jax was set up without the CPU, they are copies on its default device.
    """
    device = cpu_device()
    if device is None or _put is None:
        with jax.default_device(device):  # unlike an argument, it leaves them free to move
            return dict(zip(arrays, jax.device_put(list(arrays.values())), strict=True))
    sharding = jax.sharding.SingleDeviceSharding(device)
    described: dict[tuple[Any, ...], Any] = {}
    made = {}
    for name, array in arrays.items():
        key = (array.shape, array.dtype)
        aval = described.get(key)
        if aval is None:
            aval = described[key] = ShapedArray(*key)
        made[name] = _put(aval, sharding, [array], [device], False)
    return made


def on_host(array: Any) -> Any:
    """Return an array on one device as one that can be read here, and whose copy is freed with it.

    If jax was set up without the CPU, it is an array over the same memory: the array that is asked for its bytes
    keeps the copy.
    """
    host = cpu_device()
    if host is None:
        return jax.make_array_from_single_device_arrays(array.shape, array.sharding, [array])
    return jax.device_put(array, host)


def committed(array: Any, sharding: jax.sharding.Sharding) -> Any:
    """Return an array, which is on the only device of a sharding, as one that stays there; its memory is shared."""
    if _put is None:
        return jax.device_put(array, sharding)
    return _put(array.aval, sharding, [array], list(sharding.device_set), True)
