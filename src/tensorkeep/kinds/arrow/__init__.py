"""Arrow's files: columns as tensors, over all batches.

- `_contents`: where the tensors of a file are.
- `_kind`: the records of this kind, and of Parquet and the first Feather, which are not read.
"""

from tensorkeep.kinds.arrow._kind import ARROW, FEATHER_1, PARQUET

__all__ = ["ARROW", "FEATHER_1", "PARQUET"]
