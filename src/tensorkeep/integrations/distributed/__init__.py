"""torch.distributed.checkpoint: many ranks save one checkpoint together, and load it in any other number.

- `_rendezvous`: what the ranks of a save exchange while they write.
- `_local_objects`: what a rank has besides plain tensors.
- `_global_plan`: the plans of all ranks as one. Pure.
- `_assignments`: what each rank writes and reads. Pure.
- `_tensor_parts`: a part of a tensor: its bytes and its places in a file.
- `_write_parts`: what a rank writes into files that all ranks see.
- `_rank_save`: one save as one rank takes part in it.
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
