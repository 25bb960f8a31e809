"""A fixed number of host buffers, used again when the device has copied what is in them."""

from __future__ import annotations

import threading
from collections import deque

from tensorkeep.arrays import FetchingMemory, HostBuffer, Mark


class HostBuffers:
    """Buffers for no more threads than there are buffers; each thread holds at most one.

    So one is always free, or will be when the device has copied it: no thread waits for another.
    """

    def __init__(self, device: FetchingMemory, n_buffers: int, nbytes: int) -> None:
        self._device = device
        self._nbytes = nbytes
        self._n_unmade = n_buffers
        self._in_use: deque[tuple[HostBuffer, Mark]] = deque()
        self._lock = threading.Lock()

    def take(self) -> HostBuffer:
        """Return a buffer whose bytes nobody needs."""
        with self._lock:
            is_new = self._n_unmade > 0
            if is_new:
                self._n_unmade -= 1
            else:
                buffer, mark = self._in_use.popleft()
        if is_new:
            return self._device.host_buffer(self._nbytes)
        mark.wait()
        return buffer

    def give(self, buffer: HostBuffer, mark: Mark) -> None:
        """Give a buffer back, which the device needs until a mark."""
        with self._lock:
            self._in_use.append((buffer, mark))

    def release(self) -> None:
        """Keep no buffer that a thread does not hold."""
        with self._lock:
            self._in_use.clear()
