"""Loads to a device through a fixed amount of the CPU's memory.

Threads read into a few buffers, from which the device copies by itself while they read on. Tensors have memory of
their own, and are complete when a load returns. Nothing here knows an array library: what a device does is a
`DeviceMemory` (`tensorkeep.arrays`).

- `_options`: what a load may use, set by `tensorkeep.staging`.
- `_plan`: which bytes pass through a buffer together, and in what order. Pure.
- `_buffers`: a fixed number of buffers, used again and again.
- `_pipeline`: tensors filled by threads and the device.
- `_load`: new tensors of files.
"""

from tensorkeep.tensors.to_device._load import Staged, are_worth_staging, can_stage, device_memory_of, load_staged
from tensorkeep.tensors.to_device._options import StagingOptions, staging, staging_options
from tensorkeep.tensors.to_device._pipeline import fill_targets
from tensorkeep.tensors.to_device._plan import Part, plan_tasks

__all__ = [
    "Part",
    "Staged",
    "StagingOptions",
    "are_worth_staging",
    "can_stage",
    "device_memory_of",
    "fill_targets",
    "load_staged",
    "plan_tasks",
    "staging",
    "staging_options",
]
