"""Who may read: clients that know the token, or without a token, clients that address this machine. Pure."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from tensorkeep.errors import UnsupportedError

_match_token = re.compile(r"[!-~]+").fullmatch
_match_host = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]*)(?::[0-9]*)?").fullmatch
_LOCAL: Final = "localhost"


class Access(msgspec.Struct, frozen=True):
    """Who may read.

    Attributes:
        token: The secret that clients must send; None if they need none.
        only_local: Whether the Host header must name this machine. Otherwise a web page whose own name resolves to
            this machine's address (DNS rebinding) could read everything through a visitor's browser.
    """

    token: str | None
    only_local: bool

    def __post_init__(self) -> None:
        if self.token is not None and not _match_token(self.token):
            raise UnsupportedError(
                "the token (--token) cannot be sent in a header",
                expected="letters, digits and punctuation of ASCII, and no spaces",
                found="nothing" if not self.token else "other characters",
            )

    def refusal(self, headers: Mapping[str, str]) -> int | None:
        """Return the status that refuses a request; None if it is allowed."""
        if self.token is not None:
            return None if _knows(self.token, headers.get("authorization", "")) else 401
        return 421 if self.only_local and not names_this_machine(headers.get("host", _LOCAL)) else None


def _knows(token: str, credentials: str) -> bool:
    """Say whether credentials contain the token: as `Bearer TOKEN`, or as the `Basic` password of any user.

    The comparison takes equally long for all wrong tokens.
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


@lru_cache(64)
def names_this_machine(host: str) -> bool:
    """Say whether a Host header names this machine by a loopback address or `localhost`."""
    found = _match_host(host)
    if found is None:
        return False
    name = found[1].strip("[]").rstrip(".").lower()
    if name == _LOCAL or name.endswith(f".{_LOCAL}"):
        return True
    return is_loopback(name)


def is_loopback(address: str) -> bool:
    """Say whether an address is a loopback address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
