"""What is stored at a path? One folder per kind: how it is recognised, and how it is opened.

- `dcp/`: what torch.distributed.checkpoint wrote, as one checkpoint.
- `_findings`: what is wrong with a checkpoint.
- `safetensors/`: safetensors files as one checkpoint.
- `pickles/`: pyTorch's pickles: nested data with lazy tensors.
- `storage_crc32`: the CRC-32 that torch's archives have of storages.
"""

from tensorkeep.kinds._findings import Finding, Verification, refuse
from tensorkeep.kinds.safetensors import Checkpoint, StrayShardWarning, header_digest, read_index

__all__ = [
    "Checkpoint",
    "Finding",
    "StrayShardWarning",
    "Verification",
    "header_digest",
    "read_index",
    "refuse",
]
