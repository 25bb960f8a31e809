"""The store for a URL. There is one for each server and options, so that connections are reused."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakValueDictionary

from tensorkeep.errors import TransportError, UnsupportedError
from tensorkeep.texts import redacted, shown_url
from tensorkeep.transport.remote.http import Connections, HttpStore, HubStore, basic
from tensorkeep.transport.remote.libraries import FsspecStore, ObstoreStore, import_fsspec, import_obstore
from tensorkeep.transport.remote.objects import BUCKETS, WEB, RemoteStore, base_and_path, scheme_of

_HUB: Final = "hf"

_READ_RETRIES: Final = {"max_retries": 2, "retry_timeout": timedelta(seconds=60)}
"""`Patience` does the rest, also in the middle of a response."""

_WRITE_RETRIES: Final = {"max_retries": 8, "retry_timeout": timedelta(seconds=180)}
"""For each part: nothing else retries it."""

_ENDPOINTS: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")

_VARIABLES: Final = ("AWS_", "GOOGLE_", "AZURE_")

_known: Final[WeakValueDictionary[Any, RemoteStore]] = WeakValueDictionary()
"""Stores in use, by their arguments. The last object of a store closes its connections."""


def store_and_path(
    url: str, options: Mapping[str, Any], timeout_s: float, *, writes: bool = False
) -> tuple[RemoteStore, str]:
    """Return the store for a URL, and the path in it."""
    scheme = scheme_of(url)
    if scheme in WEB:
        return _web(url, options, timeout_s)
    if scheme in BUCKETS:
        _refuse_marks(url)
        base, path = base_and_path(url)
        key = (base, _frozen(options), timeout_s, writes, _environment())
        return _kept(key, lambda: _bucket(base, options, timeout_s, writes=writes)), path
    _refuse_url_inside(url)
    files = _file_system(url, options)
    if scheme == _HUB:
        return _kept((_HUB, id(files), timeout_s), lambda: HubStore(files, timeout_s)), _path_for_fsspec(url)
    return FsspecStore(files, scheme), _path_for_fsspec(url)


def _environment() -> frozenset[tuple[str, str]]:
    """Return the variables that say where a store is and who may use it: a long run may renew them."""
    return frozenset(each for each in os.environ.items() if each[0].startswith(_VARIABLES))


def _refuse_marks(url: str) -> None:
    """Refuse `?` and `#`, which would cut off the key."""
    found = next((mark for mark in "?#" if mark in url), None)
    if found is not None:
        raise UnsupportedError(
            f"`{found}` has no meaning in URLs of this scheme",
            path=shown_url(url),
            hint=f"Write %{ord(found):02X} if it is part of the key; pass signatures as options of tensorkeep.remote",
        )


def _refuse_url_inside(url: str) -> None:
    """Refuse one URL inside another, as fsspec knows them."""
    if "::" in url:
        raise UnsupportedError(
            "URLs inside others are not supported",
            path=shown_url(url),
            hint="Copy the file out of the archive, and open it there",
        )


def store_and_path_in(given: Any, url: str) -> tuple[RemoteStore, str]:
    """Wrap a store of obstore or fsspec, and return the path of a URL in it."""
    store, path = store_over(given), url.partition("://")[2]
    return store, path.strip("/") if isinstance(store, ObstoreStore) else path


def store_over(store: Any) -> RemoteStore:
    """Wrap a store of obstore or fsspec."""
    kind = type(store)
    if kind.__module__.partition(".")[0] == "obstore":
        return ObstoreStore(store, f"{kind.__name__.lower()}://", lists=kind.__name__ != "HTTPStore")
    if hasattr(store, "cat_file") and hasattr(store, "info"):
        protocol = store.protocol if isinstance(store.protocol, str) else store.protocol[0]
        return FsspecStore(store, protocol)
    raise UnsupportedError(
        "not a store", expected="a store of obstore, or a file system of fsspec", found=kind.__name__
    )


def _kept(key: Any, make: Callable[[], RemoteStore]) -> RemoteStore:
    """Return the store in use for a key, or a new one."""
    store = _known.get(key)
    return store if store is not None else _known.setdefault(key, make())


def _frozen(options: Any) -> Any:
    """Return options as a hashable value; an unhashable one, such as a function, counts by its identity."""
    if isinstance(options, Mapping):
        return frozenset((key, _frozen(value)) for key, value in options.items())
    return options if isinstance(options, Hashable) else id(options)


def _web(url: str, options: Mapping[str, Any], timeout_s: float) -> tuple[RemoteStore, str]:
    """Return the store for a web server, and the path on it, including the query."""
    others = options.keys() - {"headers"}
    if others:
        raise UnsupportedError(
            "invalid options for a web server", path=shown_url(url), expected="headers", found=", ".join(others)
        )
    headers = {str(key): str(value) for key, value in (options.get("headers") or {}).items()}
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if at:
        name, _, password = user.partition(":")
        headers.setdefault("Authorization", basic(name, password))
    origin = f"{parts.scheme.lower()}://{host}"
    path = urlunsplit(("", "", parts.path, parts.query, "")).removeprefix("/")
    key = (origin, _frozen(headers), timeout_s)
    return _kept(key, lambda: HttpStore(Connections(timeout_s), origin, headers)), path


def _bucket(url: str, options: Mapping[str, Any], timeout_s: float, *, writes: bool) -> RemoteStore:
    obstore = import_obstore()
    given = dict(options)
    # obstore limits a whole response to 30 seconds, too short on a slow line; only the wait for bytes matters
    client: dict[str, Any] = {"connect_timeout": "10s", "read_timeout": f"{timeout_s}s", "timeout": "1h"}
    client |= given.pop("client_options", {})
    endpoints = (given.get("endpoint"), given.get("endpoint_url"), *map(os.environ.get, _ENDPOINTS))
    if not all(_is_endpoint(str(endpoint)) for endpoint in endpoints if endpoint):
        raise UnsupportedError(
            "the endpoint is not a URL", path=shown_url(url), expected="one such as https://s3.example.org"
        )
    if any(str(endpoint).startswith("http://") for endpoint in endpoints):
        client.setdefault("allow_http", True)
    retries = (_WRITE_RETRIES if writes else _READ_RETRIES) | given.pop("retry_config", {})
    try:
        store = obstore.store.from_url(url, client_options=client, retry_config=retries, **given)
    except (obstore.exceptions.BaseError, ValueError, TypeError) as error:
        raise UnsupportedError(
            "the store cannot be opened with these options",
            path=shown_url(url),
            found=redacted(str(error)).splitlines()[0],
        ) from None
    return ObstoreStore(store, url)


_is_endpoint = re.compile(r"https?://[\w.:@\[\]/~%-]+", re.ASCII).fullmatch
"""obstore panics on an invalid endpoint."""


def _file_system(url: str, options: Mapping[str, Any]) -> Any:
    fsspec = import_fsspec()
    try:
        return fsspec.core.url_to_fs(url, **options)[0]
    except (ValueError, ImportError, TypeError) as error:
        is_hub = scheme_of(url) == _HUB
        raise UnsupportedError(
            f"no installed library reads {scheme_of(url)}://",
            path=shown_url(url),
            found=redacted(str(error)),
            hint="pip install 'tensorkeep[hf]'" if is_hub else "Install the package that adds this scheme to fsspec",
        ) from None
    except Exception as error:  # noqa: BLE001 - some connect at once, and raise whatever their libraries do
        raise TransportError(
            "the server cannot be reached",
            path=shown_url(url),
            found=redacted(str(error) or type(error).__name__),
            hint="Check the host in the URL, the network, and the options of tensorkeep.remote",
        ) from None


def _path_for_fsspec(url: str) -> str:
    return str(import_fsspec().core.strip_protocol(url))
