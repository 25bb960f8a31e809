"""MLX's own memory: arrays are computed here, on streams that every thread may use, and filled from outside.

MLX computes an array when it is needed, and only in the thread that described it. So what a load makes is computed
before it is handed out: any thread can use it then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final

import mlx.core as mx
import numpy as np

from tensorkeep.entries import TensorEntry

_N_STREAMS: Final = 2
"""Making memory zero touches it first, which is most of the time of a load; more streams gained nothing."""

_lock = threading.Lock()
"""MLX leaves it to its callers that only one thread at a time uses a stream."""


@cache
def _streams() -> tuple[Any, ...]:
    make: Callable[[Any], Any] = getattr(
        mx, "new_thread_unsafe_stream", mx.new_stream
    )  # before, all streams were such
    return tuple(make(mx.cpu) for _ in range(_N_STREAMS))


def viewed(array: Any, dtype: Any) -> Any:
    """Describe an array of the same bytes with another dtype, for `compute`."""
    return array.view(dtype, stream=_streams()[0])


def compute(arrays: Iterable[Any]) -> None:
    """Compute arrays that were described here."""
    with _lock:
        mx.eval(list(arrays))


def zeros(entries: Mapping[str, TensorEntry], dtypes: Mapping[str, Any]) -> dict[str, Any]:
    """Make arrays of zeros; `dtypes` has MLX's dtype for each of the format."""
    loads = dict.fromkeys(_streams(), 0)
    made = {}
    for name, entry in entries.items():
        stream = min(loads, key=loads.__getitem__)
        loads[stream] += entry.nbytes
        made[name] = mx.zeros(entry.shape, dtypes[entry.dtype], stream=stream)
    compute(made.values())
    return made


def memory_of(array: Any) -> memoryview:
    """Return the bytes of an array that was computed; writing to them changes it."""
    return np.frombuffer(array, np.uint8).data


@cache
def gives_own_bytes() -> bool:
    """Say whether the bytes that MLX gives are the array's own, and not a copy of them, as from another device."""
    array = zeros({"": TensorEntry("U8", (1,), (0, 1))}, {"U8": mx.uint8})[""]
    first = np.frombuffer(array, np.uint8)
    if not first.flags.writeable:
        return False
    first[:] = 1
    return bool(np.frombuffer(array, np.uint8)[0] == 1 and array.item() == 1)
