"""Arrow's files: columns as tensors, over all batches.

- `_contents`: where the tensors of a file are.
- `_kind`: the record of this kind.
"""

from tensorkeep.kinds.arrow._kind import ARROW

__all__ = ["ARROW"]
