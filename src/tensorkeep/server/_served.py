"""A line of the access log."""

from __future__ import annotations

import msgspec


class Served(msgspec.Struct, frozen=True):
    """An answered request.

    Attributes:
        at_s: Time of the request, in seconds since 1970.
        client: Address of the client.
        method: Such as `GET`.
        path: Path as requested, without the query.
        status: HTTP status.
        nbytes: Bytes of the body that were sent.
        is_whole: Whether the body was sent completely; otherwise the connection was cut.
        seconds: Time from the request to the last byte.
    """

    at_s: float
    client: str
    method: str
    path: str
    status: int
    nbytes: int
    is_whole: bool
    seconds: float
