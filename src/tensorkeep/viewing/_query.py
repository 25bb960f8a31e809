"""What a page asks for: parameters of a URL, each taken once and checked. Pure."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl

from tensorkeep.errors import UnsupportedError

_MAX_CHARS: Final = 2000
_MAX_FIELDS: Final = 16
_MAX_POSITION: Final = 2**63 - 1
_match_integer = re.compile(r"-?[0-9]{1,19}", re.ASCII).fullmatch


class QueryError(UnsupportedError):
    """A request that no page of ours sends."""


class Query:
    """The parameters of a request."""

    def __init__(self, text: str) -> None:
        if len(text) > _MAX_CHARS:
            raise QueryError("the query is too long", expected=f"at most {_MAX_CHARS:,} characters")
        try:
            pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=_MAX_FIELDS)
        except ValueError:
            raise QueryError("the query is malformed") from None
        self._given = dict(pairs)
        if len(self._given) < len(pairs):
            raise QueryError("a parameter is given twice")

    def text(self, name: str, default: str | None = None) -> str:
        """Take a text."""
        value = self._given.pop(name, default)
        if value is None:
            raise QueryError(f"the parameter `{name}` is missing")
        return value

    def has(self, name: str) -> bool:
        """Say whether a parameter is given, and not taken yet."""
        return name in self._given

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """Take an integer from `low` to `high`, both included."""
        return _integer(name, self.text(name, None if default is None else str(default)), low, high)

    def positions(self, name: str, extents: tuple[int, ...]) -> tuple[int, ...]:
        """Take one position for each extent; zeros if they are not given."""
        given = self.text(name, ",".join("0" * len(extents)))
        texts = given.split(",") if given else []
        if len(texts) != len(extents):
            raise QueryError(f"`{name}` does not fit the tensor", expected=f"{len(extents)} numbers")
        return tuple(_integer(name, text, 0, max(extent - 1, 0)) for text, extent in zip(texts, extents, strict=True))

    def dims(self, name: str, ndim: int, default: tuple[int, ...]) -> tuple[int, ...]:
        """Take as many different dimensions as the default has."""
        if not self.has(name):
            return default
        found = tuple(_integer(name, text, 0, ndim - 1) for text in self.text(name).split(","))
        if not len(found) == len(set(found)) == len(default):
            raise QueryError(f"`{name}` is invalid", expected=f"{len(default)} different dimensions")
        return found

    def path(self, name: str, max_depth: int) -> tuple[int, ...]:
        """Take positions that lead to a node, such as `2.0.1`; none lead to the top."""
        text = self.text(name, "")
        parts = text.split(".") if text else []
        if len(parts) > max_depth:
            raise QueryError(f"`{name}` is too deep", expected=f"at most {max_depth} positions")
        return tuple(_integer(name, part, 0, 10**9) for part in parts)

    def span(self, name: str, extent: int, shown: int | None = None) -> range:
        """Take a half-open range such as `10:20`, cut to an extent; the first ones, or all, if it is not given."""
        default = extent if shown is None else min(shown, extent)
        first, colon, last = self.text(name, f"0:{default}").partition(":")
        if not colon:
            raise QueryError(f"`{name}` is not a range", expected="one such as 0:100")
        start = _integer(name, first, 0, extent)
        return range(start, max(start, min(_integer(name, last, 0, _MAX_POSITION), extent)))

    def end(self) -> None:
        """Refuse parameters that were not taken."""
        if self._given:
            raise QueryError("unknown parameters are given", found=", ".join(map(repr, self._given)))


def _integer(name: str, text: str, low: int, high: int) -> int:
    found = int(text) if _match_integer(text) else None
    if found is None or not low <= found <= high:
        raise QueryError(f"`{name}` is invalid", expected=f"an integer from {low:,} to {high:,}", found=repr(text))
    return found
