"""Which modules the patterns of a configuration name, in time that is linear in the names. Pure.

The patterns come from a file. Python's `re` can be made to run forever by one, so the regular expressions that such
files hold are matched here: all at once, by an automaton whose states are made when they are first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from tensorkeep.errors import LimitError, UnsupportedError

_MAX_LENGTH: Final = 500
"""Characters of one regular expression."""

_MAX_STEPS: Final = 20_000_000
"""Steps of the automaton's construction, for all names; a second. Each pair of state and character is made once."""

_MAX_DEPTH: Final = 20
"""Groups within groups."""

_SPECIAL: Final = set("()[]{}|*+?.^$\\")
_Test: TypeAlias = Callable[[str], bool]


class _State:
    """A state of the automaton: nodes that are reached together, the patterns that accept, and the way from here."""

    __slots__ = ("accepted", "moves", "nodes")

    def __init__(self, nodes: frozenset[int], accepted: frozenset[int]) -> None:
        self.nodes = nodes
        self.accepted = accepted
        self.moves: dict[str, _State] = {}


class Patterns:
    """Names, or patterns: after `re:`, a regular expression for how a name starts; with `is_glob`, `*` and `?`."""

    def __init__(self, texts: Iterable[str], *, is_glob: bool = False) -> None:
        self.texts = tuple(texts)
        self._literals: dict[str, list[int]] = {}
        self._nodes: list[list[tuple[_Test | None, int]]] = []
        self._accepts: dict[int, int] = {}
        starts = []
        for number, text in enumerate(self.texts):
            if text.startswith("re:"):
                starts.append(self._add(text[3:], number))
            elif is_glob and ("*" in text or "?" in text):
                starts.append(self._add(_of_glob(text), number))
            else:
                self._literals.setdefault(text, []).append(number)
        self._states: dict[frozenset[int], _State] = {}
        self._start = self._state_of(starts)
        self._n_steps = 0

    def matching(self, name: str) -> list[int]:
        """Return the numbers of the patterns that name a module."""
        literal = self._literals.get(name, [])
        state = self._start
        if not state.nodes:
            return literal
        found = set(literal)
        for character in (*name, ""):  # the empty text is the end
            if not state.nodes:
                break
            if state.accepted:
                found |= state.accepted
            state = state.moves.get(character) or self._moved(state, character)
        return sorted(found | state.accepted)

    def _moved(self, state: _State, character: str) -> _State:
        self._n_steps += sum(len(self._nodes[node]) for node in state.nodes) + 1
        if self._n_steps > _MAX_STEPS:
            raise LimitError("the patterns of the configuration take too long", expected="simpler patterns")
        moved = self._state_of(
            target
            for node in state.nodes
            for test, target in self._nodes[node]
            if test is not None and test(character)
        )
        state.moves[character] = moved
        return moved

    def _state_of(self, nodes: Iterable[int]) -> _State:
        """Return the state of some nodes and of all that are reached from them without a character."""
        closed = self._closed(nodes)
        if closed not in self._states:
            accepted = frozenset(self._accepts[node] for node in closed if node in self._accepts)
            self._states[closed] = _State(closed, accepted)
        return self._states[closed]

    def _closed(self, nodes: Iterable[int]) -> frozenset[int]:
        seen = set(nodes)
        left = list(seen)
        while left:
            for test, target in self._nodes[left.pop()]:
                if test is None and target not in seen:
                    seen.add(target)
                    left.append(target)
        return frozenset(seen)

    def _add(self, pattern: str, number: int) -> int:
        if len(pattern) > _MAX_LENGTH:
            raise LimitError("a pattern of the configuration is too long", found=f"{len(pattern):,} characters")
        parser = _Parser(pattern, self._nodes)
        start, end = parser.parse()
        self._accepts[end] = number
        return start


class _Parser:
    """Adds the nodes of one regular expression to an automaton."""

    def __init__(self, text: str, nodes: list[list[tuple[_Test | None, int]]]) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._nodes = nodes

    def parse(self) -> tuple[int, int]:
        parsed = self._alternatives()
        if self._at < len(self._text):
            raise self._unknown()
        return parsed

    def _alternatives(self) -> tuple[int, int]:
        start, end = self._node(), self._node()
        while True:
            first, last = self._sequence()
            self._nodes[start].append((None, first))
            self._nodes[last].append((None, end))
            if self._peek() != "|":
                return start, end
            self._at += 1

    def _sequence(self) -> tuple[int, int]:
        start = end = self._node()
        while self._peek() not in {"", "|", ")"}:
            first, last = self._repeated()
            self._nodes[end].append((None, first))
            end = last
        return start, end

    def _repeated(self) -> tuple[int, int]:
        first, last = self._atom()
        mark = self._peek()
        if mark and mark in "*+?":
            self._at += 1
            start, end = self._node(), self._node()
            self._nodes[start].append((None, first))
            self._nodes[last].append((None, end))
            if mark != "+":
                self._nodes[start].append((None, end))
            if mark != "?":
                self._nodes[last].append((None, first))
            first, last = start, end
            if self._peek() == "?":  # lazy: it matches the same names
                self._at += 1
        if self._peek() and self._peek() in "*+?{":
            raise self._unknown()
        return first, last

    def _atom(self) -> tuple[int, int]:
        character = self._take()
        if character == "(":
            if self._text.startswith("?:", self._at):
                self._at += 2
            self._depth += 1
            if self._depth > _MAX_DEPTH or self._peek() == "?":
                raise self._unknown()
            group = self._alternatives()
            if self._take() != ")":
                raise self._unknown()
            self._depth -= 1
            return group
        start, end = self._node(), self._node()
        if character == "^":
            if self._at > 1:
                raise self._unknown()
            self._nodes[start].append((None, end))
        elif character == "$":
            self._nodes[start].append((_is_end, end))
        else:
            self._nodes[start].append((self._test(character), end))
        return start, end

    def _test(self, character: str) -> _Test:
        if character == ".":
            return bool
        if character == "[":
            return self._set()
        if character == "\\":
            return self._escaped(self._take())
        if not character or character in _SPECIAL:
            raise self._unknown()
        return character.__eq__

    def _escaped(self, character: str) -> _Test:
        if character == "d":
            return str.isdecimal
        if character == "w":
            return _is_word
        if not character or character.isalnum():
            raise self._unknown()
        return character.__eq__

    def _set(self) -> _Test:
        is_negative = self._peek() == "^"
        self._at += is_negative
        members: set[str] = set()
        while (character := self._take()) != "]":
            if not character or character in "[\\":
                raise self._unknown()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in {"", "]"}:
                self._at += 1
                last = self._take()
                if ord(last) > 127:
                    raise self._unknown()
                members.update(map(chr, range(ord(character), ord(last) + 1)))
            else:
                members.add(character)
        return (lambda one: bool(one) and one not in members) if is_negative else members.__contains__

    def _node(self) -> int:
        self._nodes.append([])
        return len(self._nodes) - 1

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._peek()
        self._at += 1
        return character

    def _unknown(self) -> UnsupportedError:
        return UnsupportedError(
            "a pattern of the configuration cannot be read",
            expected="letters, sets, groups, |, *, +, ? and escapes",
            found=repr(self._text),
        )


def _is_end(character: str) -> bool:
    return not character


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _of_glob(text: str) -> str:
    """Return the regular expression of a shell pattern for whole names."""
    written = {"*": ".*", "?": "."}
    return "".join(written.get(one, f"\\{one}" if not one.isalnum() else one) for one in text) + "$"
