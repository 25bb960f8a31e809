"""The memory of a CUDA or XPU device, and copies to it on a stream of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch

from tensorkeep.arrays._device_memory import Move, Target
from tensorkeep.arrays._fetching import OnDevice
from tensorkeep.arrays._pieces import pieces
from tensorkeep.arrays.torch._distribution import distribute
from tensorkeep.arrays.torch._dtypes import torch_dtype
from tensorkeep.arrays.torch._fetches import Mark, TorchFetches
from tensorkeep.arrays.torch.streams import STREAMS, DeviceStream, stream_after
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import LimitError

_DIRECT_FROM_NBYTES: Final = 2**18
"""Bytes from which a piece is copied straight into its tensor. Smaller ones are copied together, and then distributed
on the device: starting a copy costs as much as copying this many bytes."""


class PinnedBuffer:
    """A `HostBuffer`: memory that the device reads without the CPU's help.

    Attributes:
        tensor: The same memory, for torch.
        data: The bytes.
    """

    def __init__(self, nbytes: int, *, is_pinned: bool) -> None:
        try:
            self.tensor = torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=is_pinned)
        except RuntimeError as error:  # the driver's: it allocates what is pinned
            raise LimitError(
                "the driver gave no pinned memory",
                expected=f"{nbytes:,} bytes",
                found=str(error).partition("\n")[0],
                hint="Lower host_budget, or n_threads, with tensorkeep.staging",
            ) from None
        self.data = self.tensor.numpy().data


@contextmanager
def _room_for_tensors() -> Iterator[None]:
    """Raise a LimitError if the device has no memory left."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise LimitError(
            "the tensors do not fit in the device's memory",
            found=str(error),
            hint="Load fewer tensors, or slices of them, or cast them with view.cast",
        ) from None


class TorchDeviceMemory:
    """The memory of one device: `DeviceMemory`.

    Attributes:
        name: torch's name of the device.
    """

    def __init__(self, device: torch.device) -> None:
        self.name = str(device)
        self._device = device
        self._module = STREAMS[device.type]

    def free_nbytes(self) -> int | None:
        """Return the bytes that the device has left, and those that torch keeps without using them."""
        if not hasattr(self._module, "mem_get_info"):
            return None
        free: int = self._module.mem_get_info(self._device)[0]
        kept = self._module.memory_reserved(self._device) - self._module.memory_allocated(self._device)
        return free + int(kept)

    def allocate(self, entries: Sequence[TensorEntry]) -> list[Target]:
        """Allocate a tensor for each entry, with memory of its own."""
        with _room_for_tensors():
            return [self._empty(entry) for entry in entries]

    def converts(self, stored: DType, dtype: DType) -> bool:
        """Say whether a copy gives the numbers of `TorchArrays.cast`, which goes through F32 for some dtypes."""
        is_direct = dtype.name != "F8_E4M3" and not (stored.name == "F64" and dtype.bits < 32)
        return stored.is_float and dtype.is_float and is_direct

    def _empty(self, entry: TensorEntry) -> Target:
        dtype: Any = entry.known_dtype
        return Target(torch.empty(entry.shape, dtype=torch_dtype(dtype), device=self._device), dtype)

    def parts(self, whole: Target, places: Sequence[tuple[TensorEntry, int]]) -> list[torch.Tensor]:
        """Return tensors over bytes of another; autograd takes their memory for separate."""
        tensors: list[torch.Tensor] = []
        for run in _runs_of_places(places):
            first = run[0][1]
            sizes = [entry.n_elements for entry, _ in run]
            last = first + sum(entry.nbytes for entry, _ in run)
            elements = whole.tensor[first:last].view(torch_dtype(run[0][0].known_dtype))
            # Views would share a version counter: writing to one in place fails the backward pass of another
            tensors += (
                part.view(entry.shape).data
                for part, (entry, _) in zip(elements.split_with_sizes(sizes), run, strict=True)
            )
        return tensors

    def host_buffer(self, nbytes: int) -> PinnedBuffer:
        """Allocate pinned memory; torch keeps it for the next load."""
        return PinnedBuffer(nbytes, is_pinned=self._device.type != "cpu")

    def start(self, targets: Mapping[int, Target], buffer_nbytes: int) -> TorchCopies:
        """Start a sequence of copies that follows the caller's work, which may have used the tensors' memory."""
        with _room_for_tensors():
            scratch = torch.empty(buffer_nbytes, dtype=torch.uint8, device=self._device)
        stream = self._module.Stream(self._device)
        stream.wait_stream(self._module.current_stream(self._device))
        return TorchCopies(self._module, stream, scratch, targets)

    def start_fetching(self, orders: Sequence[DeviceStream], buffer_nbytes: int) -> TorchFetches:
        """Start a sequence of copies from the device that follows the work in some streams."""
        # Each new stream would keep freed memory of its own; the caller's uses it again, and the copies follow that
        with orders[0].entered():
            try:
                scratch = torch.empty(buffer_nbytes, dtype=torch.uint8, device=self._device)
            except torch.OutOfMemoryError:
                scratch = None
        return TorchFetches(stream_after(self._device, orders), scratch)


class TorchCopies:
    """Copies on a stream of their own: `DeviceCopies`."""

    def __init__(self, module: Any, stream: Any, scratch: torch.Tensor, targets: Mapping[int, Target]) -> None:
        self._module = module
        self._stream = stream
        self._scratch = scratch
        self._targets = targets

    def fill(self, buffer: Any, moves: Sequence[Move]) -> Mark:
        """Begin to copy from a buffer."""
        with self._module.stream(self._stream), torch.inference_mode(), _room_for_tensors():
            together: list[Move] = []
            for move in moves:
                if move.stop - move.start >= _DIRECT_FROM_NBYTES and self._is_as_stored(move):
                    self._copy(move, buffer.tensor)
                else:
                    together.append(move)
            if together:
                self._copy_together(together, buffer.tensor)
            return Mark(self._stream.record_event())

    def _is_as_stored(self, move: Move) -> bool:
        """Whether the memory of a move's tensor is what the buffers hold."""
        target = self._targets[move.target]
        return bool(target.tensor.dtype == torch_dtype(target.stored) and target.tensor.is_contiguous())

    def _copy(self, move: Move, host: torch.Tensor) -> None:
        into = self._targets[move.target].tensor.view(-1).view(torch.uint8)
        into[move.offset : move.offset + move.stop - move.start].copy_(
            host[move.start : move.stop], non_blocking=True
        )

    def _copy_together(self, moves: Sequence[Move], host: torch.Tensor) -> None:
        """Copy all that the moves cover at once; on the device, distribute it to the tensors."""
        start, stop = moves[0].start, moves[-1].stop
        self._scratch[start:stop].copy_(host[start:stop], non_blocking=True)
        distribute(self._scratch, moves, self._targets)

    def end(self) -> None:
        """Wait for all copies."""
        self._stream.synchronize()


def on_device(tensor: torch.Tensor, order: DeviceStream) -> OnDevice | None:
    """Say where a tensor is, if it is on a device that copies in the background."""
    if tensor.device.type not in STREAMS or not tensor.numel() or sys.byteorder != "little":
        return None
    whole = tensor.detach()
    whole = whole.view(-1) if whole.is_contiguous() else whole
    itemsize = tensor.element_size()

    def parts(nbytes: int) -> Iterator[tuple[int, torch.Tensor]]:
        for index in pieces(tuple(whole.shape), itemsize, nbytes):
            part = whole[index]
            yield part.numel() * itemsize, part

    return OnDevice(TorchDeviceMemory(tensor.device), parts, order, partial(_copied, whole, order))


def _copied(tensor: torch.Tensor, order: DeviceStream) -> OnDevice | None:
    with order.entered():
        try:
            copy = tensor.clone(memory_format=torch.contiguous_format)
        except torch.OutOfMemoryError:
            return None
    return on_device(copy, order)


def _runs_of_places(places: Sequence[tuple[TensorEntry, int]]) -> Iterator[list[tuple[TensorEntry, int]]]:
    """Group tensors of one dtype that follow each other without gaps."""
    run: list[tuple[TensorEntry, int]] = []
    end = 0
    for entry, start in places:
        if run and (start != end or entry.dtype != run[0][0].dtype):
            yield run
            run = []
        run.append((entry, start))
        end = start + entry.nbytes
    if run:
        yield run
