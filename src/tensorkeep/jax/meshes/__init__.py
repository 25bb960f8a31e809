"""jax.Arrays over many devices and processes: each process reads and writes its own shards.

- `_regions`: which part of an array each device and process has.
- `_coordination`: jax's coordination service as a store that the processes of a save share.
- `_meeting`: where the processes of a job meet, for each call that all of them make.
- `_array_parts`: what this process has of an array, as parts to write.
- `_save_plan`: what all processes save together, and what this one has of it.
- `_save`: one save in which all processes take part.
- `_read_regions`: reading parts of saved tensors, and hardly more bytes than these.
- `_load`: saved tensors as sharded arrays.
"""

from tensorkeep.jax.meshes._load import load_shards, put
from tensorkeep.jax.meshes._meeting import TIMEOUT_S, Meeting, check_timeout, meet
from tensorkeep.jax.meshes._save import ALIGNMENT_NBYTES, TogetherSave, Write, target_directory
from tensorkeep.jax.meshes._save_plan import spans_processes

__all__ = [
    "ALIGNMENT_NBYTES",
    "TIMEOUT_S",
    "Meeting",
    "TogetherSave",
    "Write",
    "check_timeout",
    "load_shards",
    "meet",
    "put",
    "spans_processes",
    "target_directory",
]
