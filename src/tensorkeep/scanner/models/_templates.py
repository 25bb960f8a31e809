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
from tensorkeep.scanner.models._template_texts import NUMBERS, MadeTexts, Token

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

_BY_ATTRIBUTE: Final = frozenset((
    *("dictsort", "join", "map", "max", "min", "reject", "rejectattr", "select", "selectattr", "sort", "sum"),
    "unique",
))
"""Filters that take names of attributes, of filters or of tests."""

_RESERVED: Final = _KEYWORDS | {"loop"}
"""Names that mean something else to Jinja in most places, so no variable of a template is called so."""

_PLACE_OF_SIGN: Final = 3
"""Where an assignment to a plain variable has its sign."""

_TOGETHER: Final = "the chat template puts the names of attributes together"
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


def faults_of(template: str) -> list[Fault]:
    """Return what a template uses beyond plain templating, each once; nothing for a plain one."""
    if len(template) > _MAX_LENGTH:
        return [Fault("unknown", "the chat template is too long to look into")]
    tags = list(_tags(template))
    macros = {tokens[2].text for tokens in tags if len(tokens) > 2 and tokens[1].text == "macro"}
    made = MadeTexts(tags, macros)
    faults = [fault for tokens in tags for fault in _faults_of_tag(tokens, macros, made)]
    if made.is_too_deep:
        faults.append(Fault("unknown", "the chat template is nested too deeply to look into"))
    reserved = sorted(made.targets & _RESERVED)
    faults += [Fault("unknown", f"the chat template has a variable called {name!r}") for name in reserved]
    return list(dict.fromkeys(faults))


def _tags(template: str) -> Iterator[list[Token]]:
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


def _tokens(template: str, opening: re.Match[str]) -> tuple[list[Token], int]:
    """Return the tokens up to the end of a tag; none if it has no end or holds what Jinja does not know."""
    end = "}}" if opening[0] == "{{" else "%}"
    at = opening.end() + (template[opening.end() : opening.end() + 1] in {"-", "+"})
    tokens = [Token("opening", opening[0])]
    depth = 0
    while found := _token.match(template, at):
        kind, at = found.lastgroup or "", found.end()
        text = found[kind]
        if kind == "end" and depth:  # a dict's brace beside another, or a remainder beside a brace
            kind, text, at = "operator", text[0], found.start(kind) + 1
        if kind == "end":
            return (tokens, at) if text.endswith(end) else ([], at)
        depth += (text in {"(", "[", "{"}) - (text in {")", "]", "}"}) if kind == "operator" else 0
        tokens.append(Token(kind, text))
    return [], at


def _faults_of_tag(tokens: list[Token], macros: set[str], made: MadeTexts) -> Iterator[Fault]:
    if not tokens:
        yield Fault("unknown", "the chat template is not a template that Jinja reads")
        return
    if tokens[0].text == "{%" and (len(tokens) < 2 or tokens[1].text not in _STATEMENTS):
        name = tokens[1].text if len(tokens) > 1 else ""
        yield Fault("unknown", f"the chat template has the statement {name!r:.50}")
    padded = [*tokens, Token("", ""), Token("", "")]
    for place, token in enumerate(tokens):
        before, after = padded[place - 1] if place else Token("", ""), padded[place + 1]
        if token.kind == "string":
            yield from _faults_of_text(token.text)
        elif token.kind == "operator":
            yield from _faults_of_operator(tokens, place, before, made)
        elif token.kind == "name" and not (place == 1 and tokens[0].text == "{%"):
            yield from _faults_of_name(token.text, before.text, after.text, macros)
            if before.text == "|" and token.text in _BY_ATTRIBUTE and after.text == "(":
                yield from _faults_of_filter(token.text, _inside(tokens, place + 1), made)


def _faults_of_operator(tokens: list[Token], place: int, before: Token, made: MadeTexts) -> Iterator[Fault]:
    """Report calls of what is computed, and keys."""
    text = tokens[place].text
    is_value = before.text in {")", "]", "}"} or before.kind in {"number", "string"}
    if text == "(" and is_value:
        yield Fault("suspicious", "the chat template calls something that it computed")
    elif text == "[" and (is_value or before.kind == "name"):
        yield from _faults_of_key(_inside(tokens, place), before, made)
    elif text in {"*", "**"} and before.text in {"(", ","}:
        yield Fault("unknown", "the chat template passes arguments by names that it computes")
    elif text == "=" and before.text in _METHODS and place != _PLACE_OF_SIGN and made.makes(tokens[place:]):
        yield Fault("unknown", f"the chat template makes a method of its own: {before.text!r:.50}")
    elif text in {"{", "["} and before.text == "(" and tokens[place - 2].text == "namespace":
        yield Fault("unknown", "the chat template makes names of its own")


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


def _faults_of_key(inner: list[Token] | None, before: Token, made: MadeTexts) -> Iterator[Fault]:
    """Report keys that are joined from texts, since they may be names of internals."""
    if before.text in _KEYWORDS:  # a list
        return
    if inner is not None and len(inner) == 1 and inner[0].kind == "string" and before.kind != "string":
        return
    texts = [token.text for token in inner or () if token.kind != "string"]
    filters = {after for text, after in pairwise(texts) if text == "|"}
    if inner is None or before.kind == "string" or filters - NUMBERS or made.makes(inner):
        yield Fault("unknown", _TOGETHER)


def _faults_of_filter(name: str, inner: list[Token] | None, made: MadeTexts) -> Iterator[Fault]:
    """Report names of attributes and filters that are joined from texts; `map` also takes the name of any filter."""
    if inner is None or made.makes(inner):
        yield Fault("unknown", _TOGETHER)
    elif name == "map" and [token.text for token in inner[:2]] != ["attribute", "="]:
        is_plain = inner and inner[0].kind == "string" and inner[0].text[1:-1] in _FILTERS
        if not is_plain or (len(inner) > 1 and inner[1].text != ","):
            yield Fault("unknown", "the chat template maps with a filter that is not known")


def _inside(tokens: list[Token], opening: int) -> list[Token] | None:
    """Return the tokens between a parenthesis or bracket and its end; None if there are too many."""
    depth = 0
    for place, token in enumerate(tokens[opening : opening + _MAX_KEY_LENGTH], opening):
        depth += (token.text in {"[", "(", "{"}) - (token.text in {"]", ")", "}"}) if token.kind == "operator" else 0
        if not depth:
            return tokens[opening + 1 : place]
    return None
