"""Conversion of any checkpoint to safetensors. Pickles are never run, and whatever is left out is reported.

- `_ties`: identical and overlapping tensors.
- `_state`: the tree of a nested value, with the names of a state dict.
- `_sources`: the checkpoints to convert.
- `_target`: the destination, a directory or one file.
- `_checks`: the checks of sources and of what was written.
- `_content`: what is written.
- `_result`: `Conversion`, which `convert` returns.
- `_convert`: `convert`.
"""

from tensorkeep.conversion._convert import convert
from tensorkeep.conversion._result import Conversion
from tensorkeep.conversion._sources import Sources

__all__ = [
    "Conversion",
    "Sources",
    "convert",
]
