"""The values of a state that are not tensors, as a tree for people and as JSON for programs. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from fnmatch import translate
from typing import Any, Final

import msgspec

from tensorkeep.cli.reports.inspecting._state import StateReport
from tensorkeep.cli.reports.inspecting._tables import Guides
from tensorkeep.cli.terminal import Column, Line, columns, printable
from tensorkeep.state import FIRST_ITEM, NAMED, Node, described, joined, parts_of, plain_values

_MAX_LINES: Final = 30
"""Most lines that are shown without --state."""

_MAX_CHARS: Final = 72
"""Most characters of a value."""

_FIRST_MEMBER: Final = {**FIRST_ITEM, "set": 1, "frozenset": 1}
"""Tag of a sequence or set to the position of its first item in the node."""

_IsShown = Callable[[str], object]


class _Branch(msgspec.Struct, frozen=True):
    """A named value, or a container of some."""

    label: str
    node: Node
    children: tuple[_Branch, ...] = ()


def state_lines(
    state: StateReport,
    guides: Guides,
    *,
    pattern: str | None = None,
    shows_all: bool = False,
    width: int | None = None,
) -> Iterator[Line]:
    """Draw the tree of all values that are not tensors."""
    rows = list(_rows(_top(state.tree, _chooser(pattern)), guides))
    if not rows:
        return
    shown = rows if shows_all else rows[:_MAX_LINES]
    cells = [[_label(guide, branch), _value(branch, state.paths)] for guide, branch in shown]
    yield from columns((Column("state"), Column("value")), cells, width=width)
    if len(shown) < len(rows):
        yield [(f"… {len(rows) - len(shown):,} more, --state shows all", "dim")]


def _chooser(pattern: str | None) -> _IsShown:
    return re.compile(translate(pattern)).match if pattern is not None else lambda _: True


def _top(tree: Node, is_shown: _IsShown) -> tuple[_Branch, ...]:
    if parts_of(tree) is not None:
        return _branches(tree, "", is_shown)
    is_value = tree is not None and type(tree) is not dict and tree != ["dict"]
    return (_Branch("(all)", tree),) if is_value and is_shown("") else ()


def _branches(node: Node, path: str, is_shown: _IsShown) -> tuple[_Branch, ...]:
    """Return the contents of a container, without tensors."""
    found = (_branch(label, child, joined(path, label), is_shown) for label, child in parts_of(node) or ())
    return tuple(branch for branch in found if branch is not None)


def _branch(label: str, node: Node, path: str, is_shown: _IsShown) -> _Branch | None:
    if type(node) is dict:
        return None
    parts = parts_of(node)
    if parts is None:
        return _Branch(label, node) if is_shown(path) else None
    children = _branches(node, path, is_shown)
    if not children:
        return None
    if _class_of(node):
        is_whole = len(children) == len(parts) and not any(child.children for child in children)
        is_short = is_whole and len(described(node, max_chars=_MAX_CHARS)) <= _MAX_CHARS
        return _Branch(label, node, () if is_short else children)
    if len(children) == 1:
        return msgspec.structs.replace(children[0], label=f"{label}.{children[0].label}")
    return _Branch(label, node, children)


def _class_of(node: Any) -> str:
    """Return the class name of a dataclass or namedtuple; empty for anything else."""
    return described(node[1]).strip("'") if node[0] in NAMED else ""


def _rows(branches: tuple[_Branch, ...], guides: Guides, indent: str | None = None) -> Iterator[tuple[str, _Branch]]:
    """Yield branches and their contents, each with the guide to draw before it."""
    for branch in branches:
        guide = inner = ""
        if indent is not None:
            is_last = branch is branches[-1]
            guide = indent + (guides.last if is_last else guides.between)
            inner = indent + (guides.blank if is_last else guides.passing)
        yield guide, branch
        yield from _rows(branch.children, guides, inner)


def _label(guide: str, branch: _Branch) -> Line:
    return [(guide, "dim"), (printable(branch.label) or '""', "module" if branch.children else "")]


def _value(branch: _Branch, paths: tuple[str, ...]) -> Line:
    if branch.children:
        return [(printable(_class_of(branch.node)), "dim")]
    return [(printable(described(branch.node, paths, max_chars=_MAX_CHARS)), "")]


def state_members(state: StateReport | None, *, pattern: str | None = None) -> dict[str, object] | None:
    """Return the same for JSON."""
    if state is None:
        return None
    return {
        "version": state.version,
        "library": state.library,
        "n_aliases": len(state.views),
        "n_values": state.n_values,
        "problem": state.problem,
        "aliases": {name: msgspec.to_builtins(view.alias) for name, view in state.views.items()},
        "values": dict(_named_values(state, pattern)),
    }


def _named_values(state: StateReport, pattern: str | None) -> Iterator[tuple[str, object]]:
    is_shown = _chooser(pattern)
    counts: Counter[str] = Counter()
    for path, node in plain_values(state.tree) if state.tree is not None else ():
        counts[path] += 1
        if is_shown(path):
            yield path if counts[path] == 1 else f"{path}#{counts[path]}", _json_value(node, state.paths)


def _json_value(node: Node, paths: tuple[str, ...]) -> object:
    """Return a JSON value: sequences and sets as arrays, anything else that JSON lacks as one line of text."""
    if type(node) is list and node[0] in _FIRST_MEMBER:
        return [_json_value(item, paths) for item in node[_FIRST_MEMBER[node[0]] :]]
    return described(node, paths) if isinstance(node, list | dict) else node
