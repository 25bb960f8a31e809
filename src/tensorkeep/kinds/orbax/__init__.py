"""Orbax checkpoints (JAX, Flax): directories of arrays in zarr, read by tensorstore if the caller names it.

- `_location`: recognizes such a directory, picks a step, and finds the items in it.
- `_links`: links that lead out of a checkpoint.
- `_tensorstore`: the only file that calls tensorstore.
- `_reader`: reads parts of an array as tensors.
- `_folder`: the files of one item as a source.
- `_items`: the tree of each item, with its arrays and texts.
- `_checkpoint`: `OrbaxCheckpoint`, everything as one mapping and as the saved tree.
- `_kind`: the record of this kind.
"""

from tensorkeep.kinds.orbax._checkpoint import OrbaxCheckpoint
from tensorkeep.kinds.orbax._kind import ORBAX

__all__ = [
    "ORBAX",
    "OrbaxCheckpoint",
]
