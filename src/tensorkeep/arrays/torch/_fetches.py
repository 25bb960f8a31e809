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
    """Copies on a stream of their own: `DeviceFetches`.

    `scratch` is memory of the device, as large as a host buffer, where parts get the order of a file; None if it has
    no room.
    """

    def __init__(self, stream: DeviceStream, scratch: torch.Tensor | None) -> None:
        self._stream = stream
        self._scratch = scratch

    def fetch(self, parts: Sequence[Fetched], buffer: Any) -> Mark:
        """Begin to copy to a buffer; several parts are first put side by side on the device."""
        # Another thread may have made the buffers in inference mode, and only that mode may write to them
        with self._stream.entered(), torch.inference_mode():
            if self._scratch is None or (len(parts) == 1 and _is_as_in_file(parts[0].part)):
                for each in parts:
                    buffer.tensor[each.start : each.stop].copy_(_bytes_of(each.part), non_blocking=True)
            else:
                together = self._scratch[parts[0].start : parts[-1].stop]
                _put(parts, together)
                buffer.tensor[parts[0].start : parts[-1].stop].copy_(together, non_blocking=True)
            return Mark(self._stream.event())

    def end(self) -> None:
        """Wait for all copies."""
        self._stream.synchronize()
        self._scratch = None


def _is_as_in_file(part: torch.Tensor) -> bool:
    return part.is_contiguous() and not (part.is_conj() or part.is_neg())


def _put(parts: Sequence[Fetched], into: torch.Tensor) -> None:
    """Copy parts on the device; a single one, which may be as large as a buffer, without more memory for it."""
    if len(parts) > 1:
        torch.cat([_bytes_of(each.part) for each in parts], out=into)
        return
    part = parts[0].part
    into.view(part.dtype).view(part.shape).copy_(part)


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
