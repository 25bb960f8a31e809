"""A socket that listens, and how clients name it."""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import Final

from tensorkeep.errors import UnsupportedError, as_transport_error

BACKLOG: Final = 1024
"""Connections the system queues until we accept them."""


def check_port(port: int) -> None:
    """Refuse a number that no port has."""
    if not 0 <= port < 2**16:
        raise UnsupportedError("the port is invalid", expected="0 to 65,535", found=f"{port:,}")


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens."""
    with as_transport_error("could not listen", f"{host}:{port}"):
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = min(found, key=lambda each: each[0] != socket.AF_INET)
        has_both = family == socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
        try:
            return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=has_both)
        except OSError as error:  # Python's text repeats the address
            raise OSError(error.errno, os.strerror(error.errno or 0)) from None


def host_of_url(host: str, address: str) -> str:
    """Return the host of the URL that clients use."""
    if ipaddress.ip_address(address.partition("%")[0]).is_unspecified:
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
