"""Files of CoreWeave's tensorizer.

- `_kind`: `TensorizerFile` and the record of this kind.
"""

from tensorkeep.kinds.tensorizer._kind import TENSORIZER

__all__ = ["TENSORIZER"]
