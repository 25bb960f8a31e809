"""Keras's weights in more than one HDF5 file, and in archives. One HDF5 file alone is of the kind `hdf5`.

- `_archive`: `.keras`, whose weights are read where they lie in the archive.
- `_shards`: `.weights.json` of Keras 3, and `.h5.index.json` of transformers, with their shards.
"""

from tensorkeep.kinds.keras._archive import KERAS
from tensorkeep.kinds.keras._shards import KERAS_SHARDS

__all__ = ["KERAS", "KERAS_SHARDS"]
