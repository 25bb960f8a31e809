"""Names of tensors: selected by patterns, changed, and suggested for a misspelt one. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import translate
from itertools import islice
from typing import TypeAlias

from tensorkeep.errors import RefusedError, TensorNotFoundError

Selector: TypeAlias = str | Callable[[str], object]
"""A shell pattern for whole names (`*` also matches dots; case matters), or a function of a name."""

Renaming: TypeAlias = Mapping[str, str] | Callable[[str], str]
"""Old name to new, for the names that change; or a function of every old name."""


def chosen_names(names: Iterable[str], selectors: Iterable[Selector]) -> list[str]:
    """Return the names that any selector selects, in their order."""
    is_chosen = chooser(selectors)
    return [name for name in names if is_chosen(name)]


def chooser(selectors: Iterable[Selector]) -> Callable[[str], bool]:
    """Return a function that says whether any selector selects a name."""
    patterns: list[str] = []
    functions: list[Callable[[str], object]] = []
    for selector in selectors:
        if isinstance(selector, str):
            patterns.append(selector)
        elif callable(selector):
            functions.append(selector)
        else:
            raise TypeError(f"names are selected by patterns or functions, not {type(selector).__name__}")
    if patterns:
        functions.append(re.compile("|".join(map(translate, patterns))).match)
    return lambda name: any(function(name) for function in functions)


def selectors_of(only: Selector | Iterable[Selector]) -> list[Selector]:
    """Return one selector, or several, as a list."""
    if not isinstance(only, str | Iterable) and not callable(only):
        raise TypeError(f"`only` must be a pattern, a function, or a list of these, not {type(only).__name__}")
    return [only] if isinstance(only, str) or callable(only) else list(only)


def nothing_chosen(
    selectors: Iterable[Selector], names: Iterable[str], path: str | None, hint: str | None = None
) -> TensorNotFoundError:
    """Return the error for selectors that select nothing; without a hint, it suggests a name."""
    selectors = list(selectors)
    texts = [selector for selector in selectors if isinstance(selector, str)]
    return TensorNotFoundError(
        "nothing is chosen",
        path=path,
        expected="a name that matches " + (" or ".join(map(repr, selectors)) or "a pattern"),
        hint=hint or (did_you_mean(texts[0], names) if texts else None),
    )


def changed_names(names: Iterable[str], renaming: Renaming, path: str | None) -> dict[str, str]:
    """Return old name to new, for every name of a file, in their order."""
    if isinstance(renaming, Mapping):
        changed = {name: renaming.get(name, name) for name in names}
        for name in renaming:
            if name not in changed:
                raise TensorNotFoundError(
                    f"there is no tensor `{name}` to rename",
                    path=path,
                    tensor=str(name),
                    hint=did_you_mean(str(name), changed),
                )
    elif callable(renaming):
        changed = {name: renaming(name) for name in names}
    else:
        raise TypeError(f"names are changed by a mapping or a function, not {type(renaming).__name__}")
    _check_distinct(changed, path)
    return changed


def _check_distinct(changed: Mapping[str, str], path: str | None) -> None:
    origins: dict[str, str] = {}
    for old, new in changed.items():
        if not isinstance(new, str):
            raise TypeError(f"a tensor's name must be text, not {type(new).__name__}: {new!r:.100}, for `{old}`")
        other = origins.setdefault(new, old)
        if other != old:
            raise RefusedError(
                f"two tensors would be called `{new}`",
                path=path,
                tensor=new,
                found=f"`{other}` and `{old}` before the renaming",
            )


def did_you_mean(name: str, names: Iterable[str]) -> str | None:
    """Return a question with up to three similar names, of a few hundred that are about as long."""
    alike = (other for other in names if abs(len(other) - len(name)) <= 3)
    near = difflib.get_close_matches(name, islice(alike, 300), n=3)
    return "Did you mean " + " or ".join(f"`{other}`" for other in near) + "?" if near else None
