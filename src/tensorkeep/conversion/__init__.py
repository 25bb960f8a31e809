"""Conversion of any checkpoint to safetensors. Pickles are never run, and whatever is left out is reported.

- `_ties`: identical and overlapping tensors.
- `_state`: the tree of a nested value, with the names of a state dict.
- `_sources`: the checkpoints to convert.
- `_target`: the destination, a directory or one file.
- `_checks`: the checks of sources and of what was written.
- `_convert`: `convert`, and `Conversion`, which it returns.
"""

from tensorkeep.conversion._convert import Conversion, convert
from tensorkeep.conversion._sources import Sources

__all__ = [
    "Conversion",
    "Sources",
    "convert",
]
