"""Loads to devices through a fixed amount of the CPU's memory.

Threads read into a few buffers, from which the device copies by itself while they read on. Tensors have memory of
their own, and are complete when a load returns. Nothing here knows an array library: what a device does is a
`DeviceMemory` (`tensorkeep.arrays`).

- `_device_map`: which device each tensor goes to. Pure.
- `_options`: what a load may use, set by `tensorkeep.staging`.
- `_plan`: which bytes pass through a buffer together, and in what order. Pure.
- `_together`: small tensors as parts of common memory. Pure.
- `_buffers`: a fixed number of buffers, used again and again.
- `_pipeline`: tensors filled by threads and the device.
- `_room`: whether tensors fit on a device.
- `_devices`: several devices at the same time.
- `_load`: new tensors of files.
- `_blocks`: parts of tensors, gathered in the buffers.
"""

from tensorkeep.tensors.to_device._blocks import Block, BlockLoad, fill_blocks, load_blocks
from tensorkeep.tensors.to_device._buffers import HostBuffers
from tensorkeep.tensors.to_device._device_map import devices_of
from tensorkeep.tensors.to_device._devices import fill_each_device
from tensorkeep.tensors.to_device._load import (
    DeviceLoad,
    Staged,
    are_worth_staging,
    can_stage,
    device_memory_of,
    gathering_device,
    load_staged,
)
from tensorkeep.tensors.to_device._options import (
    MIN_HOST_BUDGET,
    StagingOptions,
    staging,
    staging_options,
    staging_with,
)
from tensorkeep.tensors.to_device._pipeline import (
    Filling,
    begin_filling,
    buffer_nbytes,
    buffer_nbytes_of,
    fill_targets,
)
from tensorkeep.tensors.to_device._plan import Part, plan_tasks
from tensorkeep.tensors.to_device._room import require_room, room_left

__all__ = [
    "MIN_HOST_BUDGET",
    "Block",
    "BlockLoad",
    "DeviceLoad",
    "Filling",
    "HostBuffers",
    "Part",
    "Staged",
    "StagingOptions",
    "are_worth_staging",
    "begin_filling",
    "buffer_nbytes",
    "buffer_nbytes_of",
    "can_stage",
    "device_memory_of",
    "devices_of",
    "fill_blocks",
    "fill_each_device",
    "fill_targets",
    "gathering_device",
    "load_blocks",
    "load_staged",
    "plan_tasks",
    "require_room",
    "room_left",
    "staging",
    "staging_options",
    "staging_with",
]
