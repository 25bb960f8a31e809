"""Jinja templates in models: what one uses beyond plain templating. Pure; nothing is rendered.

Programs render the chat template of a model with Jinja, some of them without its sandbox, and then a template can
reach any Python object through attributes such as `__class__` and call it. So a template is plain only if it consists
of what templates of models need: a closed table of statements, filters, functions and methods. All else is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from tensorkeep.scanner._report import Severity

_MAX_LENGTH: Final = 200_000
"""Characters of a template; long ones have 40,000."""

_MAX_KEY_LENGTH: Final = 100
"""Tokens of a subscript; `messages[loop.index0 + 1]` has seven."""

_STATEMENTS: Final = frozenset((
    *("if", "elif", "else", "endif", "for", "endfor", "break", "continue", "set", "endset", "with", "endwith"),
    *("macro", "endmacro", "generation", "endgeneration"),
))
_FILTERS: Final = frozenset((
    *("abs", "capitalize", "count", "default", "d", "dictsort", "e", "escape", "first", "float", "indent", "int"),
    *("items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace"),
    *("reverse", "round", "safe", "select", "selectattr", "sort", "string", "strip", "sum", "title", "tojson"),
    *("trim", "unique", "upper"),
))
_FUNCTIONS: Final = frozenset(("dict", "namespace", "raise_exception", "range", "strftime_now"))
_METHODS: Final = frozenset((
    *("append", "capitalize", "count", "cycle", "endswith", "find", "get", "index", "isdigit", "items", "join"),
    *("keys", "lower", "lstrip", "replace", "rstrip", "split", "splitlines", "startswith", "strip", "title"),
    *("update", "upper", "values"),
))
_KEYWORDS: Final = frozenset(("and", "as", "elif", "else", "for", "if", "in", "is", "not", "or", "recursive", "set"))
_WAYS_OUT: Final = frozenset(("attr", "cycler", "joiner", "lipsum", "self"))
"""Filters and globals through which a template gets at Python's objects."""

_KEY_FILTERS: Final = frozenset(("count", "int", "length"))
"""Filters whose results are numbers, so that they may be in a subscript."""

_INTERNAL: Final = "the chat template reaches into Python's objects"
_tag = re.compile(r"\{\{|\{%|\{#")
_raw = re.compile(r"\{%[-+]?\s*raw\s*[-+]?%\}.*?\{%[-+]?\s*endraw\s*[-+]?%\}", re.DOTALL)
_token = re.compile(
    r"""\s*(?:
        (?P<end>[-+]?%\}|-?\}\})
      | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<name>[^\W\d]\w*)
      | (?P<number>\d[\d_]*(?:\.\d+)?)
      | (?P<operator>//|\*\*|==|!=|<=|>=|[-+*/%~<>=.,:|;()\[\]{}])
    )""",
    re.VERBOSE | re.DOTALL,
)
_spelled = re.compile(
    r"\\(?:x[2-7][0-9a-f]|[01][0-7]{2}|u00[2-7][0-9a-f]|U000000[2-7][0-9a-f]|N\{)", re.IGNORECASE
).search


class Fault(NamedTuple):
    """Something in a template that is not plain templating."""

    severity: Severity
    message: str


class _Token(NamedTuple):
    kind: str
    text: str


def faults_of(template: str) -> list[Fault]:
    """Return what a template uses beyond plain templating, each once; nothing for a plain one."""
    if len(template) > _MAX_LENGTH:
        return [Fault("unknown", "the chat template is too long to look into")]
    tags = list(_tags(template))
    macros = {tokens[2].text for tokens in tags if len(tokens) > 2 and tokens[1].text == "macro"}
    return list(dict.fromkeys(fault for tokens in tags for fault in _faults_of_tag(tokens, macros)))


def _tags(template: str) -> Iterator[list[_Token]]:
    """Yield the tokens of each tag, its opening first; an empty list for what is not a tag after all."""
    at = 0
    while found := _tag.search(template, at):
        if found[0] == "{#":
            stop = template.find("#}", found.end())
            if stop < 0:
                yield []
                return
            at = stop + 2
        elif raw := _raw.match(template, found.start()):
            at = raw.end()
        else:
            tokens, at = _tokens(template, found)
            yield tokens
            if not tokens:
                return


def _tokens(template: str, opening: re.Match[str]) -> tuple[list[_Token], int]:
    """Return the tokens up to the end of a tag; none if it has no end or holds what Jinja does not know."""
    end = "}}" if opening[0] == "{{" else "%}"
    at = opening.end() + (template[opening.end() : opening.end() + 1] in {"-", "+"})
    tokens = [_Token("opening", opening[0])]
    depth = 0
    while found := _token.match(template, at):
        kind, at = found.lastgroup or "", found.end()
        text = found[kind]
        if kind == "end" and depth:  # a dict's brace beside another, or a remainder beside a brace
            kind, text, at = "operator", text[0], found.start(kind) + 1
        if kind == "end":
            return (tokens, at) if text.endswith(end) else ([], at)
        depth += (text in {"(", "[", "{"}) - (text in {")", "]", "}"}) if kind == "operator" else 0
        tokens.append(_Token(kind, text))
    return [], at


def _faults_of_tag(tokens: list[_Token], macros: set[str]) -> Iterator[Fault]:
    if not tokens:
        yield Fault("unknown", "the chat template is not a template that Jinja reads")
        return
    if tokens[0].text == "{%" and (len(tokens) < 2 or tokens[1].text not in _STATEMENTS):
        name = tokens[1].text if len(tokens) > 1 else ""
        yield Fault("unknown", f"the chat template has the statement {name!r:.50}")
    padded = [*tokens, _Token("", ""), _Token("", "")]
    for place, token in enumerate(tokens):
        before, after = padded[place - 1] if place else _Token("", ""), padded[place + 1]
        if token.kind == "string":
            yield from _faults_of_text(token.text)
        elif token.kind == "name":
            is_statement = place == 1 and tokens[0].text == "{%"
            if not is_statement:
                yield from _faults_of_name(token.text, before.text, after.text, macros)
        elif token.text == "(" and (before.kind in {"number", "string"} or before.text in {")", "]", "}"}):
            yield Fault("suspicious", "the chat template calls something that it computed")
        elif token.text == "[" and (before.kind in {"name", "string"} or before.text in {")", "]"}):
            yield from _faults_of_key(tokens, place, before)


def _faults_of_text(literal: str) -> Iterator[Fault]:
    """Report names of internals in a text, pieces of such names, and plain letters that are spelled as escapes."""
    text = literal[1:-1]
    if "__" in text or text == "attr":
        yield Fault("suspicious", f"{_INTERNAL}: {text!r:.50}")
    elif _spelled(text):
        yield Fault("suspicious", f"the chat template hides letters: {text!r:.50}")
    elif text.startswith("_") or text.endswith("_"):
        yield Fault("unknown", f"the chat template has a piece of a name: {text!r:.50}")


def _faults_of_name(name: str, before: str, after: str, macros: set[str]) -> Iterator[Fault]:
    is_attribute, is_filter = before == ".", before == "|"
    if "__" in name or (is_attribute and name.startswith("_")) or (not is_attribute and name in _WAYS_OUT):
        yield Fault("suspicious", f"{_INTERNAL}: {name!r:.50}")
    elif is_filter:
        if name not in _FILTERS:
            yield Fault("unknown", f"the chat template has the filter {name!r:.50}")
    elif is_attribute:
        if after == "(" and name not in _METHODS:
            yield Fault("unknown", f"the chat template calls the method {name!r:.50}")
    elif before == "is" or name in _KEYWORDS:
        return
    elif after == "(":
        if name not in _FUNCTIONS and name not in macros:
            yield Fault("unknown", f"the chat template calls {name!r:.50}")
    elif (name in _FUNCTIONS or name in macros) and after != "is":
        yield Fault("unknown", f"the chat template uses {name!r:.50} without calling it")


def _faults_of_key(tokens: list[_Token], opening: int, before: _Token) -> Iterator[Fault]:
    """Report keys that are joined from texts, since they may be names of internals."""
    if before.text in _KEYWORDS:  # a list
        return
    depth = 0
    inner: list[_Token] = []
    for token in tokens[opening : opening + _MAX_KEY_LENGTH]:
        depth += (token.text in {"[", "(", "{"}) - (token.text in {"]", ")", "}"}) if token.kind == "operator" else 0
        inner.append(token)
        if not depth:
            break
    texts = [token.text for token in inner if token.kind != "string"]
    filters = {after for text, after in pairwise(texts) if text == "|"}
    is_added = len(texts) < len(inner) and not {"+", "%"}.isdisjoint(texts)
    if depth or "~" in texts or filters - _KEY_FILTERS or is_added or before.kind == "string":
        yield Fault("unknown", "the chat template puts the names of attributes together")
