"""Names of tensors with placeholders, such as `layers.{n}.attn.weight`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from tensorkeep.errors import FormatError

_find_placeholder = re.compile(r"\{(\*?)([A-Za-z_][A-Za-z0-9_]{0,31})(?::([0-9]{1,9})-([0-9]{1,9}))?\}").finditer

_NUMBER: Final = "0|[1-9][0-9]{0,8}"
_MAX_LENGTH: Final = 1000


class Pattern(msgspec.Struct, frozen=True):
    """A name with placeholders.

    Attributes:
        text: As it was written.
        literals: The text before, between and after the placeholders.
        names: The placeholders' names.
        ranges: Name of a placeholder to the numbers that it takes; without one, any number, or any text after `*`.
        expression: A regular expression that matches whole names.
    """

    text: str
    literals: tuple[str, ...]
    names: tuple[str, ...]
    ranges: Mapping[str, range]
    expression: re.Pattern[str]

    @classmethod
    def of(cls, text: str) -> Pattern:
        """Read a pattern, or refuse it with a FormatError."""
        if len(text) > _MAX_LENGTH:
            raise _wrong(text[:80] + "…", f"at most {_MAX_LENGTH:,} characters")
        literals: list[str] = []
        names: list[str] = []
        ranges: dict[str, range] = {}
        parts: list[str] = []
        n_texts = end = 0
        for found in _find_placeholder(text):
            star, name, first, last = found.groups()
            literals.append(text[end : found.start()])
            parts += [re.escape(literals[-1]), f"(?P<{name}>{'.*?' if star else _NUMBER})"]
            if names and not literals[-1]:
                raise _wrong(text, "text between two placeholders")
            if name in names:
                raise _wrong(text, f"each placeholder once, not `{name}` twice")
            if star and first:
                raise _wrong(text, "a range of numbers, or `*` for any text, not both")
            if first:
                ranges[name] = range(int(first), int(last) + 1)
            n_texts += bool(star)
            names.append(name)
            end = found.end()
        literals.append(text[end:])
        if n_texts > 1:
            raise _wrong(text, "at most one placeholder for any text")
        if any(sign in literal for literal in literals for sign in "{}"):
            raise _wrong(text, "placeholders such as {n}, {n:0-31} or {*prefix}, and no other braces")
        expression = re.compile("".join(parts) + re.escape(literals[-1]), re.DOTALL | re.ASCII)
        return cls(text, tuple(literals), tuple(names), ranges, expression)

    def match(self, name: str) -> dict[str, str] | None:
        """Return what the placeholders are in a name; None if it does not match."""
        if not (name.startswith(self.literals[0]) and name.endswith(self.literals[-1])):
            return None  # much faster than the expression
        found = self.expression.fullmatch(name)
        if found is None:
            return None
        values = found.groupdict()
        if any(int(values[each]) not in numbers for each, numbers in self.ranges.items()):
            return None
        return values

    def filled(self, values: Mapping[str, str]) -> str:
        """Return the name with these values in place of the placeholders."""
        between = zip((values[name] for name in self.names), self.literals[1:], strict=True)
        return "".join([self.literals[0], *(text for pair in between for text in pair)])


def _wrong(text: str, expected: str) -> FormatError:
    return FormatError(f"a pattern of the key map is malformed: {text!r}", expected=expected)
