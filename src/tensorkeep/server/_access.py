"""Who may read: those who know the token, or where there is none, those who mean this machine. Pure."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from tensorkeep.errors import UnsupportedError

_match_token = re.compile(r"[!-~]+").fullmatch
_match_host = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]*)(?::[0-9]*)?").fullmatch
_LOCAL: Final = "localhost"


class Access(msgspec.Struct, frozen=True):
    """Who may read.

    Attributes:
        token: What a client has to know; None where it needs nothing.
        only_local: Whether clients must mean this machine by the name that they ask for. A page on the web can give
            its own name this machine's address, and would else read all through the browser of whoever visits it.
    """

    token: str | None
    only_local: bool

    def __post_init__(self) -> None:
        if self.token is not None and not _match_token(self.token):
            raise UnsupportedError("no token that can be sent", expected="printable ASCII without spaces, not empty")

    def refusal(self, headers: Mapping[str, str]) -> int | None:
        """Return the status with which a request is refused; None for one that may read."""
        if self.token is not None:
            return None if _knows(self.token, headers.get("authorization", "")) else 401
        return 421 if self.only_local and not _is_local(headers.get("host", _LOCAL)) else None


def _knows(token: str, credentials: str) -> bool:
    """Say whether credentials have the token: `Bearer TOKEN`, or `Basic` with it as the password of any user.

    It takes as long for all that are wrong.
    """
    scheme, _, given = credentials.partition(" ")
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given.strip(), validate=True).decode().partition(":")[2]
        except (binascii.Error, ValueError):
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(given.strip().encode(errors="replace"), token.encode())


def _is_local(host: str) -> bool:
    found = _match_host(host)
    if found is None:
        return False
    name = found[1].strip("[]").rstrip(".").lower()
    if name == _LOCAL or name.endswith(f".{_LOCAL}"):
        return True
    return is_loopback(name)


def is_loopback(address: str) -> bool:
    """Say whether an address is that of the machine itself."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
