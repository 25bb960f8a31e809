"""Which variables of a Jinja template may hold a text that the template puts together. Pure.

Such a text may be the name of an internal, although no piece of it looks like one. So it may be printed, but not be
used as a key or as the name of an attribute. Variables are followed by name through the whole template, whatever
their scope: through assignments, loops, arguments of macros, and lists that something is appended to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

MAKERS: Final = frozenset(("format", "format_map", "join", "replace", "strftime_now", "sum"))
"""Filters, methods and functions that can bring underscores together."""

NUMBERS: Final = frozenset(("count", "int", "length"))
"""Filters whose results are numbers."""

_INDICES: Final = frozenset(("depth", "depth0", "index", "index0", "length", "revindex", "revindex0"))
_FILLERS: Final = frozenset(("append", "update"))
_SPECIAL: Final = "_token"
"""Ends the names of variables whose values are in the file."""

_GOES_ON: Final = frozenset(("|", ".", "["))
"""What makes something else of a number that it follows."""

_OPENING: Final = frozenset(("(", "[", "{"))
_CLOSING: Final = frozenset((")", "]", "}"))
_MAX_DEPTH: Final = 20
"""Levels of parentheses; each may repeat what is in it."""


class Token(NamedTuple):
    """A token of a tag: its kind, and how it is written."""

    kind: str
    text: str


Tokens = Sequence[Token]


class MadeTexts:
    """The names in a template that may hold texts which it puts together.

    Attributes:
        targets: Everything that gets a value: variables, attributes, loop variables and arguments of macros.
        is_too_deep: Whether parentheses are nested too deeply to tell.
    """

    def __init__(self, tags: Sequence[Tokens], macros: set[str]) -> None:
        self.targets: set[str] = set()
        self.is_too_deep = False
        self._macros = macros
        self._made: set[str] = set()
        self._users: dict[str, list[Sequence[str]]] = {}
        self._waiting: list[str] = []
        arguments = {tag[2].text: _names(tag[3:]) for tag in tags if _is_statement(tag, "macro") and len(tag) > 2}
        for tag in tags:
            self._follow(tag, arguments)
        while self._waiting:
            for users in self._users.pop(self._waiting.pop(), ()):
                self._mark(users)

    def makes(self, tokens: Tokens) -> bool:
        """Say whether the value of an expression may be such a text, or contain one."""
        return self._makes_itself(tokens) or any(name in self._made for name in _read_in(tokens))

    def _follow(self, tag: Tokens, arguments: dict[str, list[str]]) -> None:
        targets, value = _assignment(tag)
        self.targets.update(targets)
        if value is None:  # a block, whose text is the value
            self._mark(targets)
        else:
            self._flow(value, targets)
        if max(_depths(tag), default=0) > _MAX_DEPTH:
            self.is_too_deep = True
            return
        for place, token in enumerate(tag[:-1]):
            if tag[place + 1].text != "(":
                continue
            if token.text in _FILLERS:
                self._flow(_inside(tag, place + 1), _owners(tag, place))
            elif token.text in arguments and not _is_statement(tag, "macro"):
                self._flow(_inside(tag, place + 1), arguments[token.text])

    def _flow(self, value: Tokens, targets: Sequence[str]) -> None:
        """Note that names get the value of an expression."""
        if self._makes_itself(value):
            self._mark(targets)
        elif targets:
            for name in set(_read_in(value)):
                self._users.setdefault(name, []).append(targets)

    def _mark(self, names: Sequence[str]) -> None:
        self._waiting += [name for name in names if name not in self._made]
        self._made.update(names)

    def _makes_itself(self, tokens: Tokens) -> bool:
        return any(self._makes_at(tokens, place) for place in range(len(tokens)))

    def _makes_at(self, tokens: Tokens, place: int) -> bool:
        kind, text = tokens[place]
        before = tokens[place - 1] if place else Token("", "")
        after = tokens[place + 1] if place + 1 < len(tokens) else Token("", "")
        if kind == "operator" and text in {"+", "*", "%"}:
            left, right = _ends_number(tokens, place - 1), _begins_number(tokens, place + 1)
            return not {"+": left or right, "*": left and right, "%": left}[text]
        if kind == "string":
            return before.kind == "string" or text[1:-1] in MAKERS
        is_maker = text in MAKERS and (before.text in {"|", "."} or after.text == "(")
        is_macro = text in self._macros and after.text == "("
        return text == "~" or (kind == "name" and (is_maker or is_macro or text.endswith(_SPECIAL)))


def _ends_number(tokens: Tokens, place: int) -> bool:
    """Say whether what ends at a place can only be a number."""
    first, second, third = ("", "", "", *(token.text for token in tokens[max(0, place - 2) : place + 1]))[-3:]
    is_literal = 0 <= place < len(tokens) and tokens[place].kind == "number" and second != "."
    is_index = (first, second) == ("loop", ".") and third in _INDICES
    return is_literal or is_index or (second == "|" and third in NUMBERS)


def _begins_number(tokens: Tokens, place: int) -> bool:
    """Say whether what begins at a place can only be a number."""
    texts = [*(token.text for token in tokens[place : place + 4]), "", "", "", ""]
    is_literal = place < len(tokens) and tokens[place].kind == "number"
    is_index = texts[:2] == ["loop", "."] and texts[2] in _INDICES
    return (is_literal and texts[1] not in _GOES_ON) or (is_index and texts[3] not in _GOES_ON)


def _assignment(tag: Tokens) -> tuple[list[str], Tokens | None]:
    """Return the names that a tag gives a value, and the value; None if that is the text of a block."""
    statement = tag[1].text if len(tag) > 1 and tag[0].text == "{%" else ""
    texts = [token.text for token in tag]
    if statement == "set":
        equals = next((n for n, depth in enumerate(_depths(tag)) if texts[n] == "=" and not depth), None)
        stop = texts.index("|") if equals is None and "|" in texts else equals
        targets = _names(tag[2:stop])
        return targets[-1:] if "." in texts[:stop] else targets, None if equals is None else tag[equals:]
    if statement == "for" and "in" in texts:
        return _names(tag[2 : texts.index("in")]), tag[texts.index("in") :]
    if statement == "macro":
        return _names(tag[3:]), tag[3:]
    if statement == "with":
        return [name.text for name, sign in pairwise(tag) if sign.text == "="], tag
    return [], ()


def _owners(tag: Tokens, place: int) -> list[str]:
    """Return the names by which the list or dict is called whose method is at a place."""
    start = place
    while start and (tag[start - 1].kind in {"name", "string", "number"} or tag[start - 1].text in {".", "[", "]"}):
        start -= 1
    return _names(tag if tag[start - 1].text in _CLOSING else tag[start:place])


def _inside(tag: Tokens, opening: int) -> Tokens:
    """Return the tokens from a parenthesis to its end."""
    depth = 0
    for place in range(opening, len(tag)):
        if tag[place].kind == "operator":
            depth += (tag[place].text in _OPENING) - (tag[place].text in _CLOSING)
        if not depth:
            return tag[opening : place + 1]
    return tag[opening:]


def _read_in(tokens: Tokens) -> Iterator[str]:
    """Yield the names in an expression, and the keys."""
    return (token.text.strip("'\"") for token in tokens if token.kind in {"name", "string"})


def _names(tokens: Tokens) -> list[str]:
    return [token.text for token in tokens if token.kind == "name"]


def _is_statement(tag: Tokens, name: str) -> bool:
    return len(tag) > 1 and tag[0].text == "{%" and tag[1].text == name


def _depths(tokens: Tokens) -> Iterator[int]:
    depth = 0
    for token in tokens:
        if token.kind == "operator":
            depth += (token.text in _OPENING) - (token.text in _CLOSING)
        yield depth
