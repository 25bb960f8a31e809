"""HDF5 files, read without the HDF5 library: superblocks 0 to 3, old and new groups, all indexes of chunks.

Nothing outside the file is followed, no plugin is loaded, and what is not known is listed with the reason.

- `_read`: `Hdf5File` and `parse_hdf5`.
- `_search`: `Hdf5Search`, which finds one dataset.
- `_tree`: groups and datasets by name.
- `_dataset`: where the elements of a dataset are.
- `_datatype`, `_dataspace`, `_layout`: the messages that say so.
- `_attributes`: attributes as plain data.
- `_strings`: datasets of text.
- `_unknown`: what is not read.
- `chunks/`: datasets in chunks.
- `structures/`: how a file arranges its metadata.
- `writing/`: files of contiguous datasets.
"""

from tensorkeep.formats.hdf5._dataset import typed_by_attribute
from tensorkeep.formats.hdf5._read import SUFFIXES, Hdf5File, is_hdf5, parse_hdf5
from tensorkeep.formats.hdf5._search import Hdf5Search
from tensorkeep.formats.hdf5._tree import ROOT, Tree
from tensorkeep.formats.hdf5._unknown import UnknownObject
from tensorkeep.formats.hdf5.structures import MAGIC, ObjectHeader

__all__ = [
    "MAGIC",
    "ROOT",
    "SUFFIXES",
    "Hdf5File",
    "Hdf5Search",
    "ObjectHeader",
    "Tree",
    "UnknownObject",
    "is_hdf5",
    "parse_hdf5",
    "typed_by_attribute",
]
