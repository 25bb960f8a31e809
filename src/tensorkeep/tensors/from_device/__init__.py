"""Saves from devices through a fixed amount of the CPU's memory.

The device copies to a few buffers by itself, while threads use what it has copied to others. Nothing here knows an
array library, nor what the bytes are for.

- `_plan`: which bytes pass through a buffer together. Pure.
- `_fetch`: buffers that the device fills, and threads that empty them.
- `_in_order`: the same for a single thread, which gets the bytes in order.
"""

from tensorkeep.tensors.from_device._fetch import Fetching, Take, begin_fetching, fetch_each
from tensorkeep.tensors.from_device._in_order import fetch_in_order

__all__ = ["Fetching", "Take", "begin_fetching", "fetch_each", "fetch_in_order"]
