"""The Python literals of a `.npy` header, read without evaluating anything. Pure.

Reads what `repr` writes for dicts with text keys, lists, tuples, texts, whole numbers, True, False and None, in any
spacing. Everything else is refused: operators, calls, comments, prefixes, adjacent texts, a key twice. So whatever
this accepts means the same to NumPy, which hands the header to `ast.literal_eval`.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

from tensorkeep.errors import FormatError

_MAX_DEPTH: Final = 20
"""Containers within each other. A structured dtype takes three levels and two more for each dtype inside it."""

_match_token = re.compile(
    r"""[ \t\r\n]*+(?:
        (?P<mark>[{}()\[\],:])
      | (?P<word>True|False|None)(?!\w)
      | (?P<number>0|[1-9][0-9]{0,18}+)L?(?![\w.])  # Python 2 wrote long integers as 10L
      | (?P<text>'(?:[^'\\\n]|\\.)*+'|"(?:[^"\\\n]|\\.)*+")
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
).match
_ESCAPE: Final = re.compile(
    r"\\(?:([\\'\"nrt])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U(00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|)"
)
_SIMPLE_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}
_WORDS: Final[dict[str, bool | None]] = {"True": True, "False": False, "None": None}
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}

_Token = tuple[str, str]
"""The name of a group of the pattern, and the text that it matched."""


def parse_literal(text: str) -> Any:
    """Return the value of a literal."""
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def parse(self) -> Any:
        value = self._value(self._next(), 0)
        if self._next()[0] != "end":
            self._refuse("more follows the value")
        return value

    def _next(self) -> _Token:
        match = _match_token(self._text, self._position)
        if match is None or match.lastgroup is None:
            self._refuse("not a literal")
        self._position = match.end()
        return match.lastgroup, match[match.lastgroup]

    def _value(self, token: _Token, depth: int) -> Any:
        kind, text = token
        if kind == "number":
            return int(text)
        if kind == "text":
            return _ESCAPE.sub(self._unescape, text[1:-1])
        if kind == "word":
            return _WORDS[text]
        if text not in _CLOSING:
            self._refuse("a value is missing")
        if depth == _MAX_DEPTH:
            self._refuse("too many containers within each other")
        if text == "{":
            return self._dict(depth + 1)
        items, has_comma = self._items(_CLOSING[text], depth + 1)
        if text == "[":
            return items
        if len(items) == 1 and not has_comma:  # Python reads (3) as the number 3
            self._refuse("parentheses without a comma")
        return tuple(items)

    def _items(self, closing: str, depth: int) -> tuple[list[Any], bool]:
        """Return the items of a list or tuple, and whether a comma follows the last."""
        items: list[Any] = []
        has_comma = False
        while (token := self._next()) != ("mark", closing):
            if items and not has_comma:
                self._refuse("a comma is missing")
            items.append(self._value(token, depth))
            has_comma = self._skip_comma()
        return items, has_comma

    def _dict(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        has_comma = True
        while (token := self._next()) != ("mark", "}"):
            if not has_comma:
                self._refuse("a comma is missing")
            key = self._value(token, depth)
            if type(key) is not str or key in members or self._next() != ("mark", ":"):
                self._refuse("a key is not text, occurs twice or has no value")
            members[key] = self._value(self._next(), depth)
            has_comma = self._skip_comma()
        return members

    def _skip_comma(self) -> bool:
        match = _match_token(self._text, self._position)
        if match is None or match["mark"] != ",":
            return False
        self._position = match.end()
        return True

    def _unescape(self, match: re.Match[str]) -> str:
        simple, *digits = match.groups()
        code = next((text for text in digits if text), None)
        if simple is None and code is None:
            self._refuse("an escape sequence that repr does not write")
        return _SIMPLE_ESCAPES.get(simple, simple) if code is None else chr(int(code, 16))

    def _refuse(self, problem: str) -> NoReturn:
        start = max(self._position - 20, 0)
        raise FormatError(
            "cannot read the header of the array",
            expected="a Python literal, as NumPy writes it",
            found=f"{problem}, near {self._text[start : self._position + 40]!r}",
        )
