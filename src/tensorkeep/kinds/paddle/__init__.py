"""Paddle's parameters for inference.

- `_kind`: the record of this kind: tensors of a stream, with names from the program beside it.
"""

from tensorkeep.kinds.paddle._kind import PADDLE

__all__ = ["PADDLE"]
