"""torch.distributed.checkpoint: many ranks save one checkpoint together, and load it in any other number.

How they save together, whatever their library, is in `checkpoint/ranks/`.

- `_sessions`: torch's store as the place where the ranks of a save meet.
- `_local_objects`: what a rank has besides plain tensors.
- `_global_plan`: the plans of all ranks as one. Pure.
- `_tensor_parts`: a part of a tensor, as plan and planner give it.
- `_active_saves`: unfinished saves of this process.
- `_writer`: `TensorkeepWriter`.
- `_reader`: `TensorkeepReader`.
"""

import tensorkeep.errors

with tensorkeep.errors.importing(torch='"tensorkeep[torch]"'):
    import torch  # noqa: F401

from tensorkeep.integrations.distributed._reader import TensorkeepReader
from tensorkeep.integrations.distributed._writer import TensorkeepWriter

__all__ = [
    "TensorkeepReader",
    "TensorkeepWriter",
]
