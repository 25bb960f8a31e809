"""Single requests to web servers, over connections that are used again.

Bytes go from the socket straight into the memory that they are meant for, and no thread but the caller's takes part.
"""

from __future__ import annotations

import base64
import os
import weakref
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from tensorkeep.errors import TransientError, TransportError
from tensorkeep.redaction import shown_url
from tensorkeep.transport.remote.http._min_throughput import ThroughputGuard

if TYPE_CHECKING:
    import ssl
    from http.client import HTTPConnection, HTTPResponse


_MAX_IDLE: Final = 16
"""Connections to one server that are kept for the next request."""

_CONNECT_S: Final = 10.0
_DRAINED_NBYTES: Final = 2**16
"""What is left of an answer, up to which reading it costs less than another connection."""

_DRAINED_S: Final = 1.0
"""Seconds for which that is waited for."""


class Line(NamedTuple):
    """A connection to a server, and what a proxy on the way wants in each request.

    Attributes:
        connection: To the server or the proxy.
        prefix: What stands before each path.
        headers: What goes with each request.
        pace: How slowly answers may come.
    """

    connection: HTTPConnection
    prefix: str
    headers: Mapping[str, str]
    pace: ThroughputGuard


class Answer:
    """What a server answers: the status, the headers, and the body, to be read once."""

    def __init__(self, line: Line, response: HTTPResponse, idle: list[Line], name: str) -> None:
        self._line = line
        self._response = response
        self._idle = idle
        self._name = name
        self.status = response.status
        self.headers = response.headers

    def read_into(self, into: memoryview) -> int:
        """Read some bytes of the body."""
        from http.client import HTTPException

        try:
            return self._response.readinto(into)
        except (OSError, HTTPException, ValueError) as error:  # ValueError: a chunk's length that is no number
            raise TransientError("the answer was cut off", path=self._name, found=_kind_of(error)) from None

    def close(self) -> None:
        """Keep the line for the next request, or close it where much of the body was not read."""
        from http.client import HTTPException

        response = self._response
        try:
            if not response.will_close and response.length is not None and response.length <= _DRAINED_NBYTES:
                with self._line.pace.all_within(self._line.connection.sock, _DRAINED_S):
                    response.read()
            is_whole = response.isclosed() and not response.will_close
        except (OSError, HTTPException, ValueError):
            is_whole = False
        if is_whole and len(self._idle) < _MAX_IDLE:
            self._idle.append(self._line)
        else:
            response.close()
            self._line.connection.close()


class Connections:
    """Connections to web servers. A process that was forked opens its own."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._idle: dict[tuple[str, str], list[Line]] = {}
        self._pid = os.getpid()
        weakref.finalize(self, _close_all, self._idle)

    def __reduce__(self) -> tuple[type[Connections], tuple[float]]:
        return Connections, (self._timeout_s,)

    def get(self, url: str, headers: Mapping[str, str]) -> Answer:
        """Make one GET request; redirects are not followed."""
        from http.client import HTTPException

        if self._pid != os.getpid():  # two processes that read one connection would get each other's bytes
            _close_all(self._idle)
            self._pid = os.getpid()
        name = shown_url(url)
        try:
            return self._ask(urlsplit(url), headers, name)
        except (OSError, HTTPException) as error:
            if _is_untrusted(error):
                raise TransportError(
                    "the server's certificate is not trusted",
                    path=name,
                    found=str(error),
                    hint="Name the file of the certificates that you trust in SSL_CERT_FILE",
                ) from None
            if not isinstance(error, ValueError):
                raise TransientError("the server could not be read", path=name, found=_kind_of(error)) from None
        except ValueError:  # its text may have what must stay secret
            pass
        raise TransportError("the URL, or a header, is none that can be sent", path=name)

    def _ask(self, parts: SplitResult, headers: Mapping[str, str], name: str) -> Answer:
        from http.client import HTTPException

        idle = self._idle.setdefault((parts.scheme, parts.netloc), [])
        path = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        while True:
            known = _taken(idle)
            line = known or _connected(parts, self._timeout_s)
            try:
                with line.pace.all_within(None, self._timeout_s):
                    line.connection.request("GET", line.prefix + path, headers={**headers, **line.headers})
                    response = line.connection.getresponse()
                return Answer(line, response, idle, name)
            except BaseException as error:
                line.connection.close()
                # a server may have closed what was idle, which says nothing of this request
                if known is None or not isinstance(error, ConnectionError | HTTPException):
                    raise


def basic(user: str, password: str) -> str:
    """Return the value of the header that says who asks."""
    pair = f"{unquote(user)}:{unquote(password)}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _taken(idle: list[Line]) -> Line | None:
    try:
        return idle.pop()
    except IndexError:
        return None


def _close_all(idle: dict[tuple[str, str], list[Line]]) -> None:
    for lines in idle.values():
        while (line := _taken(lines)) is not None:
            line.connection.close()


def _connected(parts: SplitResult, timeout_s: float) -> Line:
    """Connect to a server, through a proxy where the environment names one."""
    from http.client import HTTPConnection, HTTPSConnection

    proxy = _proxy_for(parts)
    near = proxy or parts
    host, port = near.hostname or "", near.port
    own: dict[str, str] = {}
    if proxy is not None and proxy.username is not None:
        own["Proxy-Authorization"] = basic(proxy.username, proxy.password or "")
    connect_s = min(_CONNECT_S, timeout_s)
    prefix = ""
    if parts.scheme == "https":
        connection: HTTPConnection = HTTPSConnection(host, port, timeout=connect_s, context=_tls())
        if proxy is not None:
            connection.set_tunnel(parts.hostname or "", parts.port, own)
            own = {}
    else:
        connection = HTTPConnection(host, port, timeout=connect_s)
        if proxy is not None:
            prefix = f"{parts.scheme}://{parts.netloc}"
    pace = ThroughputGuard(timeout_s)
    connection.response_class = pace.response  # type: ignore[assignment]  # all that it is asked for is to be called
    try:
        with pace.all_within(None, connect_s):
            connection.connect()
        connection.sock.settimeout(timeout_s)
    except BaseException:
        connection.close()
        raise
    return Line(connection, prefix, own, pace)


def _proxy_for(parts: SplitResult) -> SplitResult | None:
    from urllib.request import getproxies, proxy_bypass

    proxy = getproxies().get(parts.scheme)
    if proxy is None or proxy_bypass(parts.netloc):
        return None
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}")


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    import ssl

    return ssl.create_default_context()


def _is_untrusted(error: Exception) -> bool:
    from ssl import SSLCertVerificationError

    return isinstance(error, SSLCertVerificationError)


def _kind_of(error: Exception) -> str:
    """Return what an error is, without what a server may have said, or have been told."""
    text = getattr(error, "strerror", None)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
