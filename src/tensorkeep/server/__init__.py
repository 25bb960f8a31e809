"""A directory of checkpoints, served over HTTP to those who read them: read-only, and nothing else of the disk.

- `_paths`: which names a request asks for. Pure.
- `_tree`: what stands below the served directory, opened so that nothing else can be.
- `_conditions`: versions, conditions and ranges. Pure.
- `_body`: parts of an open file as the body of an answer.
- `_access`: who may read. Pure.
- `_listing`: what a folder has, for programs and for people.
- `_answers`: what a request is answered with; no network.
- `_sending`: parts of files on their way into sockets.
- `_connections`: how many connections there are, and which goes when there is no room.
- `_served`: a line of the access log.
- `_server`: the server itself, over aiohttp, which is imported when one is made.
"""

from tensorkeep.server._connections import raise_descriptor_limit
from tensorkeep.server._served import Served
from tensorkeep.server._server import Server

__all__ = [
    "Served",
    "Server",
    "raise_descriptor_limit",
]
