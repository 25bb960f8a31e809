"""TensorFlow's checkpoints and SavedModels: an index and data files, read without TensorFlow and without any graph.

- `_location`: recognizes such a checkpoint at a path.
- `_files`: opens its index and data files, and compares them.
- `_bundle`: `TensorBundle`, everything as one mapping.
- `_checks`: the CRC-32C of each tensor.
- `_kind`: the record of this kind.
"""

from tensorkeep.kinds.tensorflow._bundle import TensorBundle
from tensorkeep.kinds.tensorflow._kind import TENSORFLOW
from tensorkeep.kinds.tensorflow._location import BundleLocation, find_bundle

__all__ = ["TENSORFLOW", "BundleLocation", "TensorBundle", "find_bundle"]
