"""Parts that several ranks have alike, read by one of them and sent to the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist

from tensorkeep.errors import TransportError
from tensorkeep.models._dtensor import as_dtensor, is_dtensor, local_of


class Replicas:
    """The tensors of a model that are being filled."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._tensors = list(tensors)

    def is_read_here(self, tensor: torch.Tensor) -> bool:
        """Say whether this rank reads its part instead of receiving it."""
        return all(group_rank == 0 for group_rank, _ in _groups(tensor))

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        """Make all ranks fail if one fails in the block, so that none waits for data that never comes."""
        try:
            yield
        except BaseException:
            with suppress(TransportError):  # this rank's own error says more
                _n_failed(1)
            raise
        n_failed = _n_failed(0)
        if n_failed:
            raise TransportError(f"{n_failed} of the ranks could not read their parts")

    def send(self) -> None:
        """Send what was read to all ranks with the same part; a collective call."""
        for tensor in self._tensors:
            local = local_of(tensor)
            if not local.numel():
                continue
            memory = local if local.is_contiguous() else local.contiguous()
            # Not every backend sends every dtype, but all of them send bytes
            bits = memory.view(torch.uint8) if memory.ndim else memory.reshape(1).view(torch.uint8)
            with _reaching_others():
                for _, group in _groups(tensor):
                    dist.broadcast(bits, group=group, group_src=0)
            if memory is not local:
                local.copy_(memory)


def _groups(tensor: torch.Tensor) -> Iterator[tuple[int, Any]]:
    """Give each group of ranks with the same part of a tensor, and this rank's number in it."""
    if not is_dtensor(tensor):
        yield dist.get_rank(), None
        return
    distributed = as_dtensor(tensor)
    coordinate = distributed.device_mesh.get_coordinate()
    for axis, placement in enumerate(distributed.placements):
        if placement.is_replicate() and coordinate is not None:
            yield coordinate[axis], distributed.device_mesh.get_group(axis)


def _n_failed(failed: int) -> int:
    group: Any = dist.distributed_c10d._get_default_group()
    device = "cpu" if torch.device("cpu") in group._device_types else "cuda"
    count = torch.tensor([failed], device=device)
    with _reaching_others():
        dist.all_reduce(count)
    return int(count)


@contextmanager
def _reaching_others() -> Iterator[None]:
    """Say what it means that a collective call fails."""
    try:
        yield
    except RuntimeError as error:
        raise TransportError("another rank ended, or cannot be reached", found=f"{error!s:.300}") from error
