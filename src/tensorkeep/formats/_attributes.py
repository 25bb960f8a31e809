"""Attributes as text: typed data of a header in metadata, which only holds text. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from math import isfinite
from typing import Any

import msgspec


def attribute_text(value: Any) -> str:
    """Return a text as it is, and anything else as JSON.

    JSON has no bytes and no infinities: bytes become `{"base64": "..."}`, and numbers that are not finite texts such
    as `"-inf"`.
    """
    return value if isinstance(value, str) else msgspec.json.encode(_plain(value)).decode()


def attribute_texts(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each attribute."""
    return {key: attribute_text(value) for key, value in attributes.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value
