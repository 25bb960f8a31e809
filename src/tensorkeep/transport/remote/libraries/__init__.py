"""Remote stores reached through obstore and fsspec.

- `_push_stream`: hands bytes to a library that pulls them in its own threads.
- `_obstore`: objects of S3, Google Cloud Storage and Azure.
- `_fsspec`: files of any other file system that fsspec knows.
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
