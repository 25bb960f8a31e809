"""Which rule divides which tensor: from patterns, and from the model's own plan. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from fnmatch import translate
from typing import Final, TypeAlias

from tensorkeep.errors import FormatError, LimitError, RefusedError
from tensorkeep.tensor_parallel._rules import WHOLE, Rule, parse_rule
from tensorkeep.texts import listed

RuleOf: TypeAlias = Callable[[str], Rule]
"""Takes the name of a tensor."""

MODEL: Final = "model"
"""The style that leaves a tensor to the model's own plan."""

_MAX_PATTERNS: Final = 1_000
"""Patterns with wildcards: each is tried on every name. Names without any are looked up, and may be many."""

_has_wildcard: Final = re.compile(r"[*?[]").search


class PatternPlan:
    """Styles by shell patterns for names of tensors, or of their modules; the first that matches counts.

    `of_model` returns the model's own plan; it is called if there are tensors of the style `"model"`.
    """

    def __init__(self, styles: Mapping[str, str], of_model: Callable[[], RuleOf]) -> None:
        _refuse_many(styles)
        self._rules = {pattern: None if style == MODEL else parse_rule(style) for pattern, style in styles.items()}
        self._place_of = {pattern: place for place, pattern in enumerate(styles)}
        self._wildcards = [(each, re.compile(translate(each)).match) for each in styles if _has_wildcard(each)]
        self._of_model = of_model
        self._found: RuleOf | None = None
        self._used: set[str] = set()

    def rule_of(self, name: str) -> Rule:
        """Return the rule of a tensor; one that no pattern matches is whole."""
        pattern = self._first_match(name, name.rpartition(".")[0])
        if pattern is None:
            return WHOLE
        self._used.add(pattern)
        rule = self._rules[pattern]
        return self._model_rule(name) if rule is None else rule

    def _first_match(self, name: str, module: str) -> str | None:
        found = [exact for exact in (name, module) if exact in self._rules]
        found += next(([pattern] for pattern, match in self._wildcards if match(name) or match(module)), [])
        return min(found, key=self._place_of.__getitem__, default=None)

    def _model_rule(self, name: str) -> Rule:
        if self._found is None:
            self._found = self._of_model()
        return self._found(name)

    def refuse_unused(self, names: Iterable[str]) -> None:
        """Refuse patterns that matched none of the names: they may be misspelled."""
        if unused := [pattern for pattern in self._rules if pattern not in self._used]:
            raise RefusedError(
                f"the plan has patterns that match no tensor: {listed(unused)}",
                expected="patterns for names of tensors or modules, such as *.q_proj",
                found=listed(f"`{name}`" for name in list(names)[:5]),
            )


def _refuse_many(styles: Mapping[str, str]) -> None:
    n_wildcards = sum(_has_wildcard(pattern) is not None for pattern in styles)
    if n_wildcards > _MAX_PATTERNS:
        raise LimitError(
            "the plan has too many patterns",
            expected=f"at most {_MAX_PATTERNS:,} with wildcards, and any number of plain names",
            found=f"{n_wildcards:,}",
        )


def parse_plan(text: bytes, path: str) -> dict[str, str]:
    """Read a plan: TOML with a table `plan` of pattern to style."""
    try:
        plan = tomllib.loads(text.decode()).get("plan")
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise FormatError("the plan is not TOML", path=path, found=str(error)) from None
    if not isinstance(plan, dict) or not plan or not all(isinstance(style, str) for style in plan.values()):
        raise FormatError(
            "the file has no plan",
            path=path,
            expected='a table such as [plan] with lines such as "*.q_proj" = "colwise"',
        )
    return plan
