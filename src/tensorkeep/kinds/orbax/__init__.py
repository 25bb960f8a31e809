"""Orbax checkpoints (JAX, Flax): directories of arrays in zarr, read by tensorkeep, or by tensorstore on request.

- `_directory`: names in directories, and small files.
- `_location`: recognizes such a directory, picks a step, and finds the items in it.
- `_links`: links and names that lead out of a checkpoint.
- `_values`: the values of arrays as one source.
- `_database_store`, `_folder_store`, `_served_store`: which values there are, in a database, or in files here or on a
  server.
- `_stored`: the arrays in such a store.
- `_reader`, `_tensorstore`: the arrays through tensorstore.
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
