"""Copies from the memory of a CUDA or XPU device, on a stream of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tensorkeep.arrays._fetching import Fetched
from tensorkeep.arrays.torch.streams import DeviceStream
from tensorkeep.errors import LimitError


class Mark:
    """An event on a stream of copies."""

    def __init__(self, event: Any) -> None:
        self._event = event

    def wait(self) -> None:
        """Wait until the device has reached it; other threads run meanwhile."""
        self._event.synchronize()


class TorchFetches:
    """Copies on a stream of their own: `DeviceFetches`."""

    def __init__(self, stream: DeviceStream, device: torch.device, buffer_nbytes: int) -> None:
        self._stream = stream
        self._device = device
        self._buffer_nbytes = buffer_nbytes
        self._scratch: torch.Tensor | None = None
        self._has_room = True

    def fetch(self, parts: Sequence[Fetched], buffer: Any) -> Mark:
        """Begin to copy to a buffer; several parts are first put side by side on the device."""
        with self._stream.entered(), torch.no_grad():
            start, stop = parts[0].start, parts[-1].stop
            together = self._room(stop) if len(parts) > 1 else None
            if together is None:
                for each in parts:
                    buffer.tensor[each.start : each.stop].copy_(_bytes_of(each.part), non_blocking=True)
            else:
                torch.cat([_bytes_of(each.part) for each in parts], out=together[start:stop])
                buffer.tensor[start:stop].copy_(together[start:stop], non_blocking=True)
            return Mark(self._stream.event())

    def _room(self, nbytes: int) -> torch.Tensor | None:
        """Return memory of the device for parts that are copied together; None if it has none left."""
        if self._scratch is None and self._has_room:
            try:
                # Made in the stream that uses it: memory freed in another may still be in use there
                self._scratch = torch.empty(self._buffer_nbytes, dtype=torch.uint8, device=self._device)
            except torch.OutOfMemoryError:
                self._has_room = False
        return None if self._scratch is None else self._scratch[:nbytes]

    def end(self) -> None:
        """Wait for all copies."""
        self._stream.synchronize()
        self._scratch = None


def _bytes_of(part: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a part on its device; one that is not contiguous is copied there."""
    try:
        contiguous = part.resolve_conj().resolve_neg().contiguous()
    except torch.OutOfMemoryError as error:
        raise LimitError(
            "the device has no room to make a part of a tensor contiguous",
            found=str(error),
            hint="Free memory of the device, or save contiguous tensors",
        ) from None
    return contiguous.view(-1).view(torch.uint8)
