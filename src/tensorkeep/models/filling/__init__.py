"""Reading a checkpoint's tensors into existing ones, in bounded memory.

- `_jobs`: what is read into what.
- `_made`: tensors that are computed, converted or unpacked, on the way to devices.
- `_whole`: `fill`.
- `_parts`: `fill_parts`, which reads hardly more bytes than these parts.
"""

from tensorkeep.models.filling._jobs import Job
from tensorkeep.models.filling._parts import PartJob, check_castable, fill_parts
from tensorkeep.models.filling._whole import fill

__all__ = ["Job", "PartJob", "check_castable", "fill", "fill_parts"]
