"""Safetensors files as one checkpoint.

- `_examine`: index and headers held against each other.
- `_consistent_read`: a checkpoint read as one, though a save may replace it meanwhile.
- `_checkpoint`: a checkpoint of safetensors files as one mapping.
- `_state_check`: what files say of a state, held against the tensors that they have.
"""

from tensorkeep.kinds.safetensors._checkpoint import Checkpoint, StrayShardWarning, open_safetensors
from tensorkeep.kinds.safetensors._consistent_read import Reading, read_consistently
from tensorkeep.kinds.safetensors._examine import Access, header_digest, read_index
from tensorkeep.kinds.safetensors._state_check import check_state

__all__ = [
    "Access",
    "Checkpoint",
    "Reading",
    "StrayShardWarning",
    "check_state",
    "header_digest",
    "open_safetensors",
    "read_consistently",
    "read_index",
]
