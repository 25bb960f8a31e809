"""torch.distributed.checkpoint: many ranks save one checkpoint together, and load it in any other number.

- `_council`: what ranks tell each other while they write.
- `_survey`: what a rank has that is no tensor, and which of its tensors are one.
- `_layout`: all plans as one. Pure.
- `_tasks`: what each rank does. Pure.
- `_parts`: a part of a tensor: its bytes, and where they go.
- `_work`: what a rank writes into files that all see.
- `_ways`: how a save gets to where it goes, as a protocol.
- `_under_way`: saves that are not over.
- `_in_files`: into files that all ranks see.
- `_in_store`: into a store.
- `_writer`: `TensorkeepWriter`.
- `_leaves`: what has a name of its own in torch.distributed.checkpoint. Pure.
- `_reader`: `TensorkeepReader`.
"""

from tensorkeep.integrations.distributed._reader import TensorkeepReader
from tensorkeep.integrations.distributed._writer import TensorkeepWriter

__all__ = [
    "TensorkeepReader",
    "TensorkeepWriter",
]
