"""Checkpoints of any kind as safetensors: nothing of a pickle is run, and what is not taken over is said.

- `_ties`: tensors of pickles that are one and the same, and those that overlap.
- `_state`: what is said of the nested value that a pickle holds.
- `_sources`: what a conversion is made of.
- `_stored`: what is written of tensors that share memory.
- `_target`: where it goes.
- `_checks`: what it is held against.
- `_conversion`: what was written, and what was left out.
- `_convert`: from file to file, checked.
"""

from tensorkeep.conversion._conversion import Conversion
from tensorkeep.conversion._convert import convert

__all__ = [
    "Conversion",
    "convert",
]
