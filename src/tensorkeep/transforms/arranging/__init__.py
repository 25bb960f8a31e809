"""Tensors cut out of others and joined, without computing anything.

- `_part`: a part of a tensor, with its dimensions in another order.
- `_joined`: several tensors as one, stacked or behind each other.
"""

from tensorkeep.transforms.arranging._joined import joined, tiled
from tensorkeep.transforms.arranging._part import dtype_of, part_of

__all__ = ["dtype_of", "joined", "part_of", "tiled"]
