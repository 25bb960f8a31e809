"""HDF5 files: every dataset of numbers, by its path as h5py shows it.

- `_library`: a file through h5py, if the caller asks for it.
- `_h5py_contents`: what h5py finds in it.
- `_kind`: `HDF5`, the record.
"""

from tensorkeep.kinds.hdf5._kind import HDF5

__all__ = ["HDF5"]
