"""HDF5 files of contiguous datasets, as every reader since version 1.8 of the HDF5 library takes them.

Metadata comes first, so that all of it is known before the first tensor is written; then the data of each dataset, at
multiples of 64 bytes, so that they can be used where they are mapped.

- `_datatypes`: the datatype of a tensor's elements.
- `_messages`: the messages of object headers.
- `_layout`: `lay_out`: where everything is, and the bytes before the data.
"""

from tensorkeep.formats.hdf5.writing._datatypes import DATASET_DTYPES
from tensorkeep.formats.hdf5.writing._layout import Dataset, FileLayout, lay_out, name_problem

__all__ = ["DATASET_DTYPES", "Dataset", "FileLayout", "lay_out", "name_problem"]
