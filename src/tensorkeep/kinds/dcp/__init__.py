"""What many ranks wrote with torch.distributed.checkpoint, read without torch and without running any of it.

- `_location`: whether a path is such a checkpoint.
- `_metadata`: what its `.metadata` says. Pure.
- `_files`: its files, and the parts of tensors in them.
- `_shards`: what safetensors files say that ranks wrote.
- `_nested`: a nested state, put together from names and paths. Pure.
- `_checks`: what of them can be checked.
- `_checkpoint`: all of it as one mapping, `DistributedCheckpoint`.
- `_open`: the files compared with what is said of them, and opened.
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
