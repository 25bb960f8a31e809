"""Saves from devices through a fixed amount of the CPU's memory.

The device copies to a few buffers by itself, while threads use what it has copied to others. Nothing here knows an
array library, nor what the bytes are for.

- `_plan`: which bytes pass through a buffer together. Pure.
- `_fetch`: buffers that the device fills, and threads that empty them.
"""

from tensorkeep.tensors.from_device._fetch import Take, fetch_each

__all__ = ["Take", "fetch_each"]
