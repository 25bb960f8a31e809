"""Who may look: everyone who has the address with its token, from a page of ours. Pure."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

import msgspec

from tensorkeep.server import names_this_machine

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
    "Server": "tensorkeep",
}
"""Headers of every answer: only our own scripts run, nothing is sent elsewhere, no other page frames or reads it."""


class Guard(msgspec.Struct, frozen=True):
    """Who may look.

    Attributes:
        token: The secret in the address.
        only_local: Whether the Host header must name this machine. Otherwise a web page whose own name resolves to
            this machine's address (DNS rebinding) could try tokens through a visitor's browser.
    """

    token: str
    only_local: bool

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> int | None:
        """Return the status that refuses a request; None if it is allowed. Names of headers are in lower case."""
        host = headers.get("host", "")
        if not host or (self.only_local and not names_this_machine(host)):
            return 421
        if method not in {"GET", "HEAD"}:
            return 405
        given = path.removeprefix("/").partition("/")[0]
        if not hmac.compare_digest(given.encode(errors="replace"), self.token.encode()):
            return 403
        return 403 if _is_from_elsewhere(host, headers) else None


def _is_from_elsewhere(host: str, headers: Mapping[str, str]) -> bool:
    """Say whether another site's page sends the request; following a link to the page is allowed."""
    if headers.get("origin", f"http://{host}") != f"http://{host}":
        return True
    if headers.get("sec-fetch-site", "none") in {"none", "same-origin"}:
        return False
    return (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) != ("navigate", "document")
