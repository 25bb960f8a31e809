"""Names as short texts that all differ. Pure.

A name that is too long is cut in the middle. Where that would make several names equal, the part in which they differ
is shown instead; where even that is too long, they are shown whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from os.path import commonprefix
from typing import Final

from tensorkeep.cli.terminal._columns import cells, clipped
from tensorkeep.texts import printable

_DOTS: Final = "…"


def distinct_names(names: Iterable[str], n_cells: int | None) -> dict[str, str]:
    """Return a text for each name that a terminal shows as it is, if possible in `n_cells` cells."""
    whole = _escaped(names)
    if n_cells is None:
        return whole
    short = {name: clipped(text, n_cells) for name, text in whole.items()}
    for group in _equal(short):
        short |= _told_apart({name: whole[name] for name in group}, n_cells)
    for group in _equal(short):
        short |= {name: whole[name] for name in group}
    return whole if _equal(short) else short


def _escaped(names: Iterable[str]) -> dict[str, str]:
    """Escape what a terminal would obey; and what already looks like an escape, where names would look the same."""
    shown = {name: printable(name) or '""' for name in names}
    return {name: json.dumps(name).replace("\x7f", r"\u007f") for name in shown} if _equal(shown) else shown


def _told_apart(texts: Mapping[str, str], n_cells: int) -> dict[str, str]:
    """Shorten texts to the part between what all begin with and what all end with, and as much of that as fits."""
    prefix = _beginning_of(texts.values())
    suffix = _beginning_of(text[len(prefix) :][::-1] for text in texts.values())[::-1]
    cores = {name: text[len(prefix) : len(text) - len(suffix)] for name, text in texts.items()}
    n_spare = max(n_cells - 2 * cells(_DOTS) - max(map(cells, cores.values())), 0)
    before = prefix[max(len(prefix) - n_spare // 2, 0) :]
    after = suffix[: n_spare - len(before)]
    left = ("" if before == prefix else _DOTS) + before
    right = after + ("" if after == suffix else _DOTS)
    n_core = max(n_cells - cells(left) - cells(right), 2)
    return {name: left + clipped(core, n_core) + right for name, core in cores.items()}


def _beginning_of(texts: Iterable[str]) -> str:
    return commonprefix(list(texts))  # noqa: RUF071 - characters are meant, not folders


def _equal(texts: Mapping[str, str]) -> list[list[str]]:
    """Return the groups of names with equal texts."""
    if len(set(texts.values())) == len(texts):
        return []
    groups: dict[str, list[str]] = {}
    for name, text in texts.items():
        groups.setdefault(text, []).append(name)
    return [group for group in groups.values() if len(group) > 1]
