"""How an HDF5 file arranges its metadata; what datasets are is for the folder above.

- `_fields`: little-endian fields.
- `_reading`: parsers that ask for bytes, and `Blocks`, which reads what they ask for.
- `_checksums`: the checksums of metadata and of data.
- `_superblock`: where a file begins.
- `_object_header`: the messages of an object.
- `_heaps`: local and global heaps.
- `_btree_v1`, `_btree_v2`: B-trees.
- `_fractal_heap`: heaps of large groups.
- `_links`: the links of a group.
"""

from tensorkeep.formats.hdf5.structures._btree_v1 import CHUNKS, read_btree_v1
from tensorkeep.formats.hdf5.structures._btree_v2 import Tree, read_btree_v2
from tensorkeep.formats.hdf5.structures._checksums import CHECKSUM_NBYTES, FLETCHER32
from tensorkeep.formats.hdf5.structures._fields import Fields
from tensorkeep.formats.hdf5.structures._fractal_heap import read_heap_objects
from tensorkeep.formats.hdf5.structures._heaps import read_global_heap
from tensorkeep.formats.hdf5.structures._links import Link, holds_links, read_links
from tensorkeep.formats.hdf5.structures._object_header import (
    ATTRIBUTE,
    ATTRIBUTE_INFO,
    DATASPACE,
    DATATYPE,
    EXTERNAL_FILES,
    FILL_VALUE,
    FILTERS,
    LAYOUT,
    OLD_FILL_VALUE,
    Message,
    ObjectHeader,
    read_object,
    read_shared,
)
from tensorkeep.formats.hdf5.structures._reading import Blocks, Dialect, Parsing, together
from tensorkeep.formats.hdf5.structures._superblock import MAGIC, Superblock, find_superblock, parse_superblock

__all__ = [
    "ATTRIBUTE",
    "ATTRIBUTE_INFO",
    "CHECKSUM_NBYTES",
    "CHUNKS",
    "DATASPACE",
    "DATATYPE",
    "EXTERNAL_FILES",
    "FILL_VALUE",
    "FILTERS",
    "FLETCHER32",
    "LAYOUT",
    "MAGIC",
    "OLD_FILL_VALUE",
    "Blocks",
    "Dialect",
    "Fields",
    "Link",
    "Message",
    "ObjectHeader",
    "Parsing",
    "Superblock",
    "Tree",
    "find_superblock",
    "holds_links",
    "parse_superblock",
    "read_btree_v1",
    "read_btree_v2",
    "read_global_heap",
    "read_heap_objects",
    "read_links",
    "read_object",
    "read_shared",
    "together",
]
