"""Where are the bytes, if not here? Objects of web servers, S3, Google Cloud Storage, Azure, the Hub and others.

- `objects/`: objects in a store, and requests for them.
- `libraries/`: stores that obstore and fsspec reach.
- `reading/`: A remote object as a byte source, with a cache.
- `http/`: web servers and the Hugging Face Hub.
- `_stores`: the store that a URL leads to.
- `_path`: a URL that knows its store.
"""

from tensorkeep.transport.remote._path import RemotePath, remote
from tensorkeep.transport.remote.objects import (
    Body,
    StoredObject,
    Version,
    is_url,
    local_path,
    plan_requests,
    refuse_damaged_url,
    refuse_url,
)
from tensorkeep.transport.remote.reading import RemoteSource

__all__ = [
    "Body",
    "RemotePath",
    "RemoteSource",
    "StoredObject",
    "Version",
    "is_url",
    "local_path",
    "plan_requests",
    "refuse_damaged_url",
    "refuse_url",
    "remote",
]
