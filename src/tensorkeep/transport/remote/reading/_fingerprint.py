"""A digest that identifies a URL with its options, without containing secrets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tensorkeep.digests import digest_of


def fingerprint_of(url: str, options: Mapping[str, Any], store: Any = None) -> str:
    """Return a digest of everything that decides what a server sends: 64 hexadecimal digits."""
    identity = None if store is None else getattr(store, "_fs_token", None) or repr(store)  # fsspec's own cache key
    return digest_of(msgspec.json.encode((url, _plain(options), identity))).hex()


def _plain(value: Any) -> Any:
    """Return a value as JSON data; other objects as the name of their class."""
    if isinstance(value, Mapping):
        return sorted((str(key), _plain(each)) for key, each in value.items())
    return value if isinstance(value, str | int | float | bool | None) else type(value).__name__
