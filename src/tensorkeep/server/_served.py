"""What was answered: a line of the access log."""

from __future__ import annotations

import msgspec


class Served(msgspec.Struct, frozen=True):
    """A request that was answered.

    Attributes:
        at_s: When it came, in seconds since 1970.
        client: Who asked: an address.
        method: Such as `GET`.
        path: What was asked for, without the query, as it stood in the request.
        status: What was answered.
        nbytes: Bytes of the body that were sent.
        is_whole: Whether these are all; else the connection was cut.
        seconds: From the request to the last byte.
    """

    at_s: float
    client: str
    method: str
    path: str
    status: int
    nbytes: int
    is_whole: bool
    seconds: float
