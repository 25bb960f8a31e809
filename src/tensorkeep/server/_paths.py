"""Which names below the served directory a request asks for. Pure.

Only plain names are accepted: none that could lead elsewhere on any system, and none that begins with a dot, since
secrets and the temporary files of saves have such names.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote_to_bytes

import msgspec

_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f/\\]" if os.name != "nt" else r'[\x00-\x1f\x7f/\\:<>"|?*]')
_match_origin = re.compile(r"https?://[^/?#]*", re.IGNORECASE).match


class Asked(msgspec.Struct, frozen=True):
    """The path that a request asks for.

    Attributes:
        names: Names of the folders on the way, then its own; empty for the served directory itself.
        is_folder: Whether the path ends with a slash.
    """

    names: tuple[str, ...]
    is_folder: bool


@lru_cache(256)
def asked_by(target: str) -> Asked | None:
    """Return the path that a request target asks for; None if it cannot be served."""
    origin = _match_origin(target)
    path = re.split(r"[?#]", target[origin.end() if origin else 0 :], maxsplit=1)[0]
    if not path.startswith("/"):
        return Asked((), is_folder=True) if origin and not path else None
    *parts, last = path[1:].split("/")
    if last:
        parts.append(last)
    names = [_decoded(part) for part in parts]
    if not all(name is not None and is_served(name) for name in names):
        return None
    return Asked(tuple(name for name in names if name is not None), is_folder=not last)


def _decoded(part: str) -> str | None:
    try:
        return unquote_to_bytes(part).decode()
    except ValueError:
        return None


def is_served(name: str) -> bool:
    """Say whether a file or folder of that name may be served."""
    if not name or name.startswith(".") or _FORBIDDEN.search(name):
        return False
    if os.name == "nt" and name.endswith((".", " ")):  # which Windows ignores
        return False
    return not any("\ud800" <= char <= "\udfff" for char in name)  # bytes that are not UTF-8 have no URL


def link_to(name: str, *, is_folder: bool) -> str:
    """Return the relative link to an entry from its folder."""
    return f"./{quote(name, safe='')}{'/' if is_folder else ''}"
