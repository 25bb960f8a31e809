"""Web servers and the Hugging Face Hub.

- `_multipart`: several ranges in one answer.
- `_min_throughput`: how slowly an answer may come.
- `_connections`: web servers, asked by ourselves.
- `_http`: web servers, asked by ourselves.
- `_hub`: the Hugging Face Hub, asked as the web server that it is.
"""

from tensorkeep.transport.remote.http._connections import Connections, basic
from tensorkeep.transport.remote.http._http import HttpStore
from tensorkeep.transport.remote.http._hub import HubStore

__all__ = [
    "Connections",
    "HttpStore",
    "HubStore",
    "basic",
]
