"""GET requests to web servers, over connections that urllib3 keeps and uses again.

urllib3 does what every client of the web needs: connections, pools of them, TLS, and proxies. Three things are added:

- Bytes go from the socket straight into the caller's memory; urllib3's own `readinto` copies them once more.
- A server that sends a byte now and then is given up (`ThroughputGuard`); urllib3 only ends silence.
- urllib3 never sees the query of a URL, which may be a signature: it writes URLs to its log.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from tensorkeep.errors import TransientError, TransportError
from tensorkeep.texts import shown_url
from tensorkeep.transport.remote.http._min_throughput import ThroughputGuard

if TYPE_CHECKING:
    import ssl
    from http.client import HTTPResponse

    from urllib3 import BaseHTTPResponse, HTTPConnectionPool
    from urllib3.connection import HTTPConnection
else:
    HTTPConnection = object  # a first request brings urllib3, and nothing before


_MAX_IDLE: Final = 256
"""Idle connections per server; urllib3 logs a warning for each one beyond that."""

_CONNECT_S: Final = 10.0
_DRAINED_NBYTES: Final = 2**16
"""Unread bytes of a body up to which reading them costs less than another connection."""

_DRAINED_S: Final = 1.0
_TARGET: Final = "Tensorkeep-Target"
"""Takes the path and query of a request past urllib3 to the connection; it is not sent."""


class Answer:
    """The status, headers and body of a response; the body can be read once."""

    def __init__(self, response: BaseHTTPResponse, connection: _GuardedConnection, name: str) -> None:
        self._response = response
        self._connection = connection
        self._body = connection.response  # before the connection makes its next one
        self._guard = connection.guard
        self._name = name
        self.status = response.status
        self.headers = response.headers

    def read_into(self, into: memoryview) -> int:
        """Read some bytes of the body; 0 at its end."""
        from http.client import HTTPException

        try:
            return self._body.readinto(into)
        except (OSError, HTTPException, ValueError) as error:  # ValueError: a chunk's length that is not a number
            raise TransientError("the answer was cut off", path=self._name, found=_described(error)) from None

    def close(self) -> None:
        """Keep the connection for the next request, or close it if much of the body was not read."""
        from http.client import HTTPException

        body = self._body
        try:
            if not body.will_close and body.length is not None and body.length <= _DRAINED_NBYTES:
                with self._guard.all_within(self._connection.sock, _DRAINED_S):
                    body.read()
            is_reusable = body.isclosed() and not body.will_close
        except (OSError, HTTPException, ValueError):
            is_reusable = False
        if is_reusable:
            self._response.release_conn()
        else:
            self._response.close()


class Connections:
    """Connections to web servers. A forked process opens its own."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._pools: dict[tuple[str, str], tuple[HTTPConnectionPool, str]] = {}
        self._pid = os.getpid()

    def __reduce__(self) -> tuple[type[Connections], tuple[float]]:
        return Connections, (self._timeout_s,)

    def get(self, url: str, headers: Mapping[str, str]) -> Answer:
        """Make one GET request, without following redirects."""
        from http.client import HTTPException

        from urllib3.exceptions import HTTPError

        if self._pid != os.getpid():  # two processes reading one connection would get each other's bytes
            self._pools, self._pid = {}, os.getpid()
        name = shown_url(url)
        try:
            return self._ask(urlsplit(url), headers, name)
        except (HTTPError, HTTPException, OSError, ValueError) as error:
            failure = _root_of(error)
        raise _error_for(failure, name)  # outside of the block: the text of its context may have secrets

    def _ask(self, parts: SplitResult, headers: Mapping[str, str], name: str) -> Answer:
        from urllib3.util import SKIP_HEADER

        origin = (parts.scheme, parts.netloc)
        known = self._pools.get(origin)
        pool, prefix = known or self._pools.setdefault(origin, _pool_for(parts, self._timeout_s))
        path = parts.path or "/"
        target = prefix + urlunsplit(("", "", path, parts.query, ""))
        response = pool.urlopen(
            "GET",
            prefix + path,
            headers={"User-Agent": SKIP_HEADER, **headers, _TARGET: target},
            retries=False,  # requests to stores of all kinds are repeated by `Patience`, also within an answer
            redirect=False,  # credentials stay with the origin they are for, and https never leads to http: _http.py
            assert_same_host=False,  # through a proxy, the pool's host is the proxy
            preload_content=False,
            decode_content=False,
        )
        return Answer(response, cast("_GuardedConnection", response.connection), name)


class _GuardedConnection(HTTPConnection):
    """What is added to urllib3's connections."""

    guard: ThroughputGuard
    response: HTTPResponse
    _target: str

    def connect(self) -> None:
        self._start_guard()
        with self.guard.all_within(None, self.guard.timeout_s):  # a proxy may drip its answer to CONNECT
            super().connect()

    def request(  # type: ignore[override]
        self, method: str, url: str, *, headers: Mapping[str, str], **options: Any
    ) -> None:
        others = dict(headers)
        self._target = others.pop(_TARGET)
        super().request(method, url, headers=others, **options)

    def putrequest(self, method: str, url: str, skip_host: bool = False, skip_accept_encoding: bool = False) -> None:  # noqa: ARG002
        super().putrequest(method, self._target, skip_host, skip_accept_encoding)

    def getresponse(self) -> Any:
        self._start_guard()
        with self.guard.all_within(None, self.guard.timeout_s):
            return super().getresponse()

    def response_class(self, *arguments: Any, **options: Any) -> HTTPResponse:  # type: ignore[override]
        """Make a response; `http.client` calls this for each."""
        self.response = _response_class()(*arguments, **options)
        self.guard.watch(self.response)
        return self.response

    def _start_guard(self) -> None:
        self.guard = ThroughputGuard(self.timeout or _CONNECT_S)  # urllib3 sets it: to connect, then to read


@lru_cache(maxsize=1)
def _response_class() -> type[HTTPResponse]:
    import http.client

    class Response(http.client.HTTPResponse):
        def begin(self) -> None:
            super().begin()
            self.msg.defects.clear()  # urllib3 logs what is not a header, which may be a signed URL
            self.msg.set_payload("")

    return Response


@lru_cache(maxsize=1)
def _pool_classes() -> dict[str, Any]:
    """Return urllib3's pools of connections, with guarded connections."""
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool

    return {
        pool.scheme: type(
            pool.__name__,
            (pool,),
            {"ConnectionCls": type(pool.ConnectionCls.__name__, (_GuardedConnection, pool.ConnectionCls), {})},
        )
        for pool in (HTTPConnectionPool, HTTPSConnectionPool)
    }


def _pool_for(parts: SplitResult, timeout_s: float) -> tuple[HTTPConnectionPool, str]:
    """Return connections to a server, and what its proxy wants before each path."""
    from urllib3 import PoolManager, ProxyManager, Timeout

    proxy = _proxy_for(parts)
    if proxy is None:
        manager = PoolManager()
    else:
        own = {} if proxy.username is None else {"Proxy-Authorization": basic(proxy.username, proxy.password or "")}
        manager = ProxyManager(f"{proxy.scheme}://{proxy.netloc.rpartition('@')[2]}", proxy_headers=own)
    manager.pool_classes_by_scheme = _pool_classes()
    timeout = Timeout(connect=min(_CONNECT_S, timeout_s), read=timeout_s)
    options: dict[str, Any] = {"maxsize": _MAX_IDLE, "timeout": timeout}
    if parts.scheme == "https":
        options["ssl_context"] = _tls()
    pool = manager.connection_from_host(parts.hostname, parts.port, parts.scheme, options)
    return pool, f"http://{parts.netloc}" if proxy is not None and parts.scheme == "http" else ""


def _proxy_for(parts: SplitResult) -> SplitResult | None:
    """Return the proxy that the environment, or the system, names for a server."""
    from urllib.request import getproxies, proxy_bypass

    proxy = getproxies().get(parts.scheme)
    if proxy is None or proxy_bypass(parts.netloc):
        return None
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}")


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    import ssl

    return ssl.create_default_context()  # which knows SSL_CERT_FILE


def basic(user: str, password: str) -> str:
    """Return the value of an `Authorization` header; names are UTF-8, which urllib3's helper cannot encode."""
    pair = f"{unquote(user)}:{unquote(password)}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _root_of(error: BaseException) -> BaseException:
    """Return the error of Python or the system that urllib3 wrapped."""
    while inner := error.__cause__ or next((each for each in error.args if isinstance(each, Exception)), None):
        error = inner
    return error


def _error_for(error: BaseException, name: str) -> TransportError:
    from socket import gaierror
    from ssl import SSLCertVerificationError

    if isinstance(error, SSLCertVerificationError):
        return TransportError(
            "the server's certificate is not trusted",
            path=name,
            found=str(error),
            hint="Name the file with the certificates that you trust in SSL_CERT_FILE",
        )
    if isinstance(error, ValueError):
        return TransportError("the URL or a header cannot be sent", path=name)
    is_absent = isinstance(error, (ConnectionRefusedError, gaierror))
    hint = "Check the address, and that the server runs" if is_absent else None
    return TransientError("the server could not be read", path=name, found=_described(error), hint=hint)


def _described(error: BaseException) -> str:
    """Describe an error without any text of a request or an answer."""
    text = getattr(error, "strerror", None)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
