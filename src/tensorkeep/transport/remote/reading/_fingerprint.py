"""What tells where something remote is from all other places, without what must stay secret. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tensorkeep.digests import digest_of


def fingerprint_of(url: str, options: Mapping[str, Any], store: Any = None) -> str:
    """Return a digest of all by which a server may choose what it gives: 64 hexadecimal digits."""
    told = None if store is None else getattr(store, "_fs_token", None) or repr(store)  # what fsspec knows its own by
    return digest_of(msgspec.json.encode((url, _plain(options), told))).hex()


def _plain(value: Any) -> Any:
    """Return a value as something that can be written down: what is no plain data by its kind."""
    if isinstance(value, Mapping):
        return sorted((str(key), _plain(each)) for key, each in value.items())
    return value if isinstance(value, str | int | float | bool | None) else type(value).__name__
