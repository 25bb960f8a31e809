"""Parts of a tensor on a device, copied to the CPU's memory while those before them are used."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch

from tensorkeep.arrays.torch.streams import STREAMS, DeviceStream

PART_NBYTES: Final = 4 * 2**20
"""Bytes of one part: long enough for the device to copy at full speed."""

_N_AHEAD: Final = 3
"""Parts that are being copied while one is used."""


def parts_on_host(tensor: torch.Tensor, indices: Iterable[Any], stream: DeviceStream) -> Iterator[torch.Tensor]:
    """Yield parts of a tensor in memory of the CPU, in order.

    A CUDA or XPU device copies to pinned memory by itself, in a stream that follows all that was begun in the given
    one, in which the tensor was written.
    """
    side = stream.follower()
    if tensor.nbytes < PART_NBYTES or tensor.device.type not in STREAMS:
        for index in indices:
            with side.entered():  # not around `yield`, after which the caller's code would work in it
                part = tensor[index].cpu()
            yield part
        return
    copies: deque[tuple[torch.Tensor, Any]] = deque()
    for index in indices:
        with side.entered():
            copies.append((_copy_of(tensor[index]), side.event()))
        if len(copies) > _N_AHEAD:
            yield _complete(*copies.popleft())
    while copies:
        yield _complete(*copies.popleft())


def _copy_of(part: torch.Tensor) -> torch.Tensor:
    part = part.resolve_conj().resolve_neg()
    host = torch.empty(part.shape, dtype=part.dtype, device="cpu", pin_memory=part.device.type != "cpu")
    return host.copy_(part, non_blocking=True)


def _complete(host: torch.Tensor, event: Any) -> torch.Tensor:
    event.synchronize()
    return host
