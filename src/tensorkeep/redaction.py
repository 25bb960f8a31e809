"""What must not be shown: users, passwords and queries of URLs, which may be signatures. Pure."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["redacted"]

_SECRETS: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://)(?:[^/\s\"'<>]*@)?([^\s\"'?#<>]*)(?:\?[^\s\"'<>]*)?")
"""A URL anywhere in a text: what comes before its host and after its path may be secret."""


def redacted(text: str) -> str:
    """Take users, passwords and queries out of all URLs of a text.

    Args:
        text: A URL, or any text, such as the message of an error.
    """
    return _SECRETS.sub(r"\1\2", text) if "://" in text else text
