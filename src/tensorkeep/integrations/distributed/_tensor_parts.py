"""A rank's part of a tensor, as its plan and planner give it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem

from tensorkeep.arrays import OnDevice, pieces, tensor_to_write
from tensorkeep.arrays.torch.streams import current_stream
from tensorkeep.arrays.torch.to_host import PART_NBYTES, parts_on_host
from tensorkeep.dtypes import DType, torch_row
from tensorkeep.errors import DtypeError, UnsupportedError
from tensorkeep.integrations.distributed._global_plan import region_of
from tensorkeep.integrations.distributed._local_objects import tensor_data_of
from tensorkeep.limits import PACK_NBYTES
from tensorkeep.tensors import Region, narrowed, place_on_device


class RankParts(Sequence["TorchPart"]):
    """What a rank has by its plan, one part for each item of it."""

    def __init__(self, plan: SavePlan, planner: SavePlanner) -> None:
        self._items = plan.items
        self._planner = planner

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, place: Any) -> Any:
        return TorchPart(self._items[place], self._planner)


class TorchPart:
    """A part of a tensor, which the planner gives once, when it is needed: `Part`."""

    def __init__(self, item: WriteItem, planner: SavePlanner) -> None:
        self._item = item
        self._planner = planner

    @property
    def dtype(self) -> DType:
        """Its row in the dtype table."""
        dtype = torch_row(tensor_data_of(self._item).properties.dtype)
        if dtype is None:
            name = self._item.index.fqn
            raise DtypeError(f"tensor `{name}` has a dtype that the format cannot hold", tensor=name)
        return dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements of the whole tensor along each dimension, as torch counts them."""
        return tuple(tensor_data_of(self._item).size)

    @property
    def region(self) -> Region:
        """Which part of the tensor it is."""
        return region_of(self._item)

    def on_device(self) -> OnDevice | None:
        """Return where it is, if its device copies in the background."""
        return place_on_device(tensor_to_write(self._value, self._item.index.fqn))

    def blocks(self) -> Iterator[tuple[Region, memoryview]]:
        """Yield the part in C order: regions of the tensor and their bytes."""
        return _blocks_of(self._item.index.fqn, self._value, self.region)

    @cached_property
    def _value(self) -> torch.Tensor:
        """The part, with the dtype and shape that were planned."""
        name, wanted = self._item.index.fqn, tensor_data_of(self._item).properties.dtype
        part = self._planner.resolve_data(self._item)
        if not isinstance(part, torch.Tensor) or torch_row(part.dtype) != torch_row(wanted):
            raise DtypeError(
                f"the planner gives another dtype for tensor `{name}` than it planned",
                tensor=name,
                expected=str(wanted),
                found=str(getattr(part, "dtype", type(part).__name__)),
            )
        if tuple(part.shape) != self.region.shape:
            raise UnsupportedError(
                f"a part of tensor `{name}` does not have the planned shape",
                tensor=name,
                expected=str(list(self.region.shape)),
                found=str(list(part.shape)),
            )
        return part.detach()


def _blocks_of(name: str, part: torch.Tensor, region: Region) -> Iterator[tuple[Region, memoryview]]:
    tensor_to_write(part, name)  # refuses what has no bytes here
    if part.device.type == "cpu" and part.is_contiguous() and not (part.is_conj() or part.is_neg()):
        yield region, _bytes_of(part, name)
        return
    indices = list(pieces(region.shape, part.element_size(), PACK_NBYTES if part.is_cpu else PART_NBYTES))
    for index, copied in zip(indices, parts_on_host(part, indices, current_stream(part.device)), strict=True):
        yield narrowed(region, index), _bytes_of(copied.resolve_conj().resolve_neg().contiguous(), name)


def _bytes_of(tensor: torch.Tensor, name: str) -> memoryview:
    buffers = [memoryview(buffer).cast("B") for buffer in tensor_to_write(tensor, name).buffers()]
    return buffers[0] if len(buffers) == 1 else memoryview(b"".join(buffers))
