"""Parts of a tensor on a device, copied to the CPU's memory while those before them are used."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch

from tensorkeep.arrays.torch._device_memory import STREAMS

PART_NBYTES: Final = 4 * 2**20
"""Bytes of one part: long enough for the device to copy at full speed."""

_N_AHEAD: Final = 3
"""Parts that are being copied while one is used."""


def parts_on_host(tensor: torch.Tensor, indices: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield parts of a tensor in memory of the CPU, in order.

    A CUDA or XPU device copies to pinned memory by itself, after all work that was begun before.
    """
    module = STREAMS.get(tensor.device.type)
    if module is None or tensor.nbytes < PART_NBYTES:
        for index in indices:
            yield tensor[index].cpu()
        return
    stream = module.Stream(tensor.device)
    stream.wait_stream(module.current_stream(tensor.device))
    copies: deque[tuple[torch.Tensor, Any]] = deque()
    for index in indices:
        with module.stream(stream):
            copies.append((_copy_of(tensor[index]), stream.record_event()))
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
