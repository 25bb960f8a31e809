"""The streams in which threads work on CUDA and XPU devices (imports torch).

A thread begins in the default stream of the first device, whatever its caller has set. There, it could read a tensor
before the caller's kernels have written it, and the caller could use one before it is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch

STREAMS: Final[dict[str, Any]] = {"cuda": torch.cuda, "xpu": torch.xpu}
"""Types of devices that copy in the background from pinned memory, and torch's modules of their streams.

Others, such as mps, share the CPU's memory, or are filled by plain copies."""


class DeviceStream:
    """A stream of a device; of one without streams, all methods do nothing."""

    def __init__(self, device: torch.device, stream: Any) -> None:
        self._device = device
        self._module = STREAMS.get(device.type)
        self._stream = stream

    def entered(self) -> AbstractContextManager[Any]:
        """Return a block in which any thread works in this stream, and on its device."""
        return nullcontext() if self._module is None else self._module.stream(self._stream)

    def follower(self) -> DeviceStream:
        """Return a new stream for work that follows all that was begun in this one."""
        return stream_after(self._device, [self])

    def synchronize(self) -> None:
        """Wait for all work that was begun in this stream."""
        if self._module is not None:
            self._stream.synchronize()

    def event(self) -> Any:
        """Return an event after all work that was begun in this stream; None if the device has no streams."""
        return None if self._module is None else self._stream.record_event()


def current_stream(device: torch.device) -> DeviceStream:
    """Return the stream in which the calling thread works."""
    module = STREAMS.get(device.type)
    return DeviceStream(device, None if module is None else module.current_stream(device))


def new_stream(device: torch.device) -> DeviceStream:
    """Return a stream for work that follows no other."""
    module = STREAMS.get(device.type)
    return DeviceStream(device, None if module is None else module.Stream(device))


def stream_after(device: torch.device, streams: Iterable[DeviceStream]) -> DeviceStream:
    """Return a new stream for work that follows all that was begun in others."""
    after = new_stream(device)
    if device.type in STREAMS:
        for stream in {each._stream for each in streams}:
            after._stream.wait_stream(stream)
    return after
