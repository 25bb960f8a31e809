"""Stores that obstore and fsspec reach.

- `_push_stream`: bytes on their way to a library that cannot be stopped otherwise.
- `_obstore`: all other stores, asked by libraries.
- `_fsspec`: all other stores, asked by libraries.
"""

from tensorkeep.transport.remote.libraries._fsspec import FsspecObject, FsspecStore, import_fsspec
from tensorkeep.transport.remote.libraries._obstore import ObstoreStore, import_obstore

__all__ = [
    "FsspecObject",
    "FsspecStore",
    "ObstoreStore",
    "import_fsspec",
    "import_obstore",
]
