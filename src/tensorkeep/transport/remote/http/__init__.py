"""Web servers and the Hugging Face Hub.

- `_multipart`: several ranges in one answer.
- `_min_throughput`: a time limit on slow answers.
- `_connections`: single requests, over connections of urllib3.
- `_http`: files on web servers, read by range.
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
