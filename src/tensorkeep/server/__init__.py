"""Serves a directory of checkpoints over HTTP, read-only, and nothing else on the disk.

- `_paths`: which names a request asks for. Pure.
- `_tree`: opens files below the served directory, and nothing else.
- `_conditions`: versions, conditions and ranges. Pure.
- `_body`: parts of an open file as the body of an answer.
- `_access`: who may read. Pure.
- `_listing`: directory listings, for programs and for people.
- `_answers`: the answer to a request; no network.
- `_sending`: sends parts of files to sockets.
- `_connections`: limits connections, and closes idle ones when there are too many.
- `_listening`: a socket that listens.
- `_in_thread`: a thread with an event loop, in which a server runs.
- `_aiohttp`: aiohttp's server, without words of its own.
- `_served`: a line of the access log.
- `_server`: the server itself, over aiohttp, which is imported when a server is made.
"""

from tensorkeep.server._access import is_loopback, names_this_machine
from tensorkeep.server._aiohttp import check_aiohttp, terse_server
from tensorkeep.server._connections import Connections, affordable_connections, raise_descriptor_limit
from tensorkeep.server._in_thread import InThread
from tensorkeep.server._listening import BACKLOG, check_port, host_of_url, listening_socket
from tensorkeep.server._served import Served
from tensorkeep.server._server import Server

__all__ = [
    "BACKLOG",
    "Connections",
    "InThread",
    "Served",
    "Server",
    "affordable_connections",
    "check_aiohttp",
    "check_port",
    "host_of_url",
    "is_loopback",
    "listening_socket",
    "names_this_machine",
    "raise_descriptor_limit",
    "terse_server",
]
