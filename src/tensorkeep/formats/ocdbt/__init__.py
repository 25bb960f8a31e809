"""OCDBT, tensorstore's database of keys and values: a manifest, and a B+tree in files of data. Pure.

- `_columns`: numbers and bytes, one column after another.
- `_envelope`: what is around each structure: magic, length, compression and CRC-32C.
- `_files`: the table of the data files that a structure refers to.
- `_manifest`: where the newest tree begins.
- `_node`: one node of a tree.
- `_database`: all keys, and where their values are.
"""

from tensorkeep.formats.ocdbt._database import Fetch, Location, read_database
from tensorkeep.formats.ocdbt._manifest import MAX_MANIFEST_NBYTES, Manifest, newest_of, parse_manifest

__all__ = [
    "MAX_MANIFEST_NBYTES",
    "Fetch",
    "Location",
    "Manifest",
    "newest_of",
    "parse_manifest",
    "read_database",
]
