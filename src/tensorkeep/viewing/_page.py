"""The files of the page, which are part of this package."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import msgspec

INDEX: Final = "index.html"

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "woff2": "font/woff2",
}
"""Suffix to media type; files of other types are not served."""


class PageFile(msgspec.Struct, frozen=True):
    """A file of the page."""

    content_type: str
    content: bytes


def read_page() -> dict[str, PageFile]:
    """Return all files of the page, by their relative names."""
    found: dict[str, PageFile] = {}
    _collect(files("tensorkeep.viewing") / "page", "", found)
    return found


def _collect(folder: Traversable, prefix: str, found: dict[str, PageFile]) -> None:
    for each in folder.iterdir():
        name = f"{prefix}{each.name}"
        if each.is_dir():
            _collect(each, f"{name}/", found)
        elif (content_type := _TYPES.get(name.rpartition(".")[2])) is not None:
            found[name] = PageFile(content_type, each.read_bytes())
