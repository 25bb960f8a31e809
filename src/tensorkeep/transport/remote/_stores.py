"""The store that a URL leads to. Those of one server are made once, so that its connections are used again."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from tensorkeep.errors import UnsupportedError
from tensorkeep.transport.remote._base import RemoteStore
from tensorkeep.transport.remote._fsspec import FsspecStore, import_fsspec
from tensorkeep.transport.remote._obstore import ObstoreStore, import_obstore
from tensorkeep.transport.remote._urls import base_and_path, redacted, scheme_of, shown_url

__all__ = ["store_and_path", "store_over"]

_WEB: Final = frozenset({"http", "https"})
_BUCKETS: Final = frozenset({"s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss"})

_CLIENT: Final = {"connect_timeout": "10s", "read_timeout": "30s", "timeout": "1h"}
"""obstore gives a whole answer 30 seconds, in which a slow line brings little; what counts is that bytes come."""

_RETRIES: Final = {"max_retries": 2, "retry_timeout": timedelta(seconds=60)}
"""`Patience` does the rest: it goes on in the middle of an answer, too."""


def store_and_path(url: str, options: Mapping[str, Any]) -> tuple[RemoteStore, str]:
    """Return the store that a URL leads to, and the path in it.

    Args:
        url: With any scheme that obstore or fsspec knows.
        options: What the store takes, beyond what the environment says.

    Raises:
        UnsupportedError: If nothing knows the scheme, or the store does not take the options.
        MissingDependencyError: If the library that knows it is not installed.
    """
    scheme = scheme_of(url)
    if scheme in _WEB and "?" in url:  # a signature or a token, which is that of this very file
        return _web(url, _frozen(options)), ""
    if scheme in _WEB | _BUCKETS:
        base, path = base_and_path(url.partition("?")[0])
        make = _web if scheme in _WEB else _bucket
        return make(base, _frozen(options)), path
    return FsspecStore(_file_system(url, options), scheme), _path_for_fsspec(url)


def store_over(store: Any) -> RemoteStore:
    """Return a store over one that the caller has made.

    Args:
        store: One of obstore's stores, or a file system of fsspec.

    Raises:
        UnsupportedError: If it is neither.
    """
    kind = type(store)
    if kind.__module__.partition(".")[0] == "obstore" or hasattr(store, "prefix"):
        return ObstoreStore(store, f"{kind.__name__.lower()}://", lists=kind.__name__ != "HTTPStore")
    if hasattr(store, "cat_file") and hasattr(store, "info"):
        protocol = store.protocol if isinstance(store.protocol, str) else store.protocol[0]
        return FsspecStore(store, protocol)
    raise UnsupportedError(
        "no store that can be read from", expected="one of obstore, or a file system of fsspec", found=kind.__name__
    )


_Frozen = tuple[tuple[str, Any], ...]


def _frozen(options: Mapping[str, Any]) -> _Frozen:
    return tuple(
        sorted((key, _frozen(value) if isinstance(value, Mapping) else value) for key, value in options.items())
    )


def _thawed(options: Any) -> dict[str, Any]:
    return {key: _thawed(value) if isinstance(value, tuple) else value for key, value in options}


@lru_cache(maxsize=32)
def _web(url: str, options: _Frozen) -> RemoteStore:
    """Make the store of a server, or of a single file where the URL has a query."""
    obstore = import_obstore()
    given = _thawed(options)
    parts = urlsplit(url)
    headers = dict(given.pop("headers", {}))
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers.setdefault("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())
        url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    client = {**_CLIENT, "allow_http": True, **given.pop("client_options", {})}
    if headers:
        client["default_headers"] = {**client.get("default_headers", {}), **headers}
    retries = {**_RETRIES, **given.pop("retry_config", {})}
    if given:
        raise UnsupportedError(
            "the server takes no such options",
            path=shown_url(url),
            expected="headers, client_options or retry_config",
            found=", ".join(given),
        )
    return ObstoreStore(
        obstore.store.HTTPStore.from_url(url, client_options=client, retry_config=retries), url, lists=False
    )


@lru_cache(maxsize=32)
def _bucket(url: str, options: _Frozen) -> RemoteStore:
    obstore = import_obstore()
    given = _thawed(options)
    client = {**_CLIENT, **given.pop("client_options", {})}
    endpoints = (given.get("endpoint"), given.get("endpoint_url"), os.environ.get("AWS_ENDPOINT_URL"))
    if any(str(endpoint).startswith("http://") for endpoint in endpoints):
        client.setdefault("allow_http", True)
    retries = {**_RETRIES, **given.pop("retry_config", {})}
    try:
        store = obstore.store.from_url(url, client_options=client, retry_config=retries, **given)
    except (obstore.exceptions.BaseError, ValueError, TypeError) as error:
        raise UnsupportedError(
            "the store cannot be opened so", path=shown_url(url), found=redacted(str(error)).splitlines()[0]
        ) from None
    return ObstoreStore(store, url)


def _file_system(url: str, options: Mapping[str, Any]) -> Any:
    fsspec = import_fsspec()
    try:
        return fsspec.core.url_to_fs(url, **options)[0]
    except (ValueError, ImportError, TypeError) as error:
        raise UnsupportedError(
            f"nothing here reads {scheme_of(url)}://",
            path=shown_url(url),
            found=redacted(str(error)),
            hint="Install the package that teaches fsspec this scheme",
        ) from None


def _path_for_fsspec(url: str) -> str:
    return str(import_fsspec().core.strip_protocol(url))
