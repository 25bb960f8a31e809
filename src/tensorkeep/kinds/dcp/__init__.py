"""Checkpoints of torch.distributed.checkpoint, read without torch and without running any of them.

- `_location`: recognises such a checkpoint at a path.
- `_metadata`: parses `.metadata`. Pure.
- `_files`: the files, and the parts of tensors in them.
- `_shards`: the state in safetensors files that ranks wrote separately.
- `_checks`: the checks of tensors and values.
- `_checkpoint`: `DistributedCheckpoint`, everything as one mapping.
- `_open`: compares the files with `.metadata`, and opens them.
- `_kind`: the record of this kind.
"""

from tensorkeep.kinds.dcp._checkpoint import DistributedCheckpoint
from tensorkeep.kinds.dcp._files import ChunkFiles, OpenedChunk
from tensorkeep.kinds.dcp._kind import DISTRIBUTED
from tensorkeep.kinds.dcp._location import DistributedLocation, find_distributed
from tensorkeep.kinds.dcp._metadata import Chunk, ChunkedTensor, Item, SavedState
from tensorkeep.kinds.dcp._open import Examined, FileFault, assembled, examine_distributed, open_distributed

__all__ = [
    "DISTRIBUTED",
    "Chunk",
    "ChunkFiles",
    "ChunkedTensor",
    "DistributedCheckpoint",
    "DistributedLocation",
    "Examined",
    "FileFault",
    "Item",
    "OpenedChunk",
    "SavedState",
    "assembled",
    "examine_distributed",
    "find_distributed",
    "open_distributed",
]
