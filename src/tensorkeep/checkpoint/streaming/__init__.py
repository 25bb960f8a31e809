"""A checkpoint that is written tensor by tensor, in any order, and never all in memory.

- `_rooms`: where tensors wait: in files of known size if they are planned, else in the order in which they come.
- `_writer`: `writing`.
"""

from tensorkeep.checkpoint.streaming._writer import CheckpointWriter, writing

__all__ = ["CheckpointWriter", "writing"]
