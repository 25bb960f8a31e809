"""HDF5 files: every dataset of numbers, by its path as h5py shows it.

- `_kind`: `HDF5`, the record.
"""

from tensorkeep.kinds.hdf5._kind import HDF5

__all__ = ["HDF5"]
