"""Which names become which, and which have no rule. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from tensorkeep.errors import LimitError, RefusedError
from tensorkeep.texts import counted, listed
from tensorkeep.transforms.keymaps._rule import MAX_STACKED, Match, Rule, filled

GroupKey: TypeAlias = tuple[int, tuple[tuple[str, str], ...]]
"""Number of a rule, and the values of its placeholders without the stacked one."""


class Group(msgspec.Struct, frozen=True):
    """Names on the left that one rule turns into names on the right.

    Attributes:
        rule: The rule.
        values: The values of its placeholders without the stacked one.
        rows: Names on the left: for each stacked part, one for each pattern.
    """

    rule: Rule
    values: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> list[str]:
        """All names on the left."""
        return [name for row in self.rows for name in row]

    def new_rows(self, n_rows: int) -> list[list[str]]:
        """Return the names on the right, if the whole is split into so many stacked parts."""
        stack = self.rule.stack if self.rule.parts_side == "right" else None
        if stack is None:
            return [[filled(pattern, self.values) for pattern in self.rule.right]]
        if n_rows > MAX_STACKED:
            raise LimitError(
                f"tensor `{self.rows[0][0]}` has too many parts",
                expected=f"at most {MAX_STACKED:,}",
                found=f"{n_rows:,}",
            )
        return [
            [filled(pattern, self.values, {stack: str(number)}) for pattern in self.rule.right]
            for number in range(n_rows)
        ]


class Plan(msgspec.Struct, frozen=True):
    """What becomes of names.

    Attributes:
        groups: Groups of names by key.
        others: Names that no rule matches.
    """

    groups: Mapping[GroupKey, Group]
    others: tuple[str, ...]


def grouped(rules: Sequence[Rule], names: Iterable[str]) -> tuple[dict[GroupKey, list[tuple[Match, str]]], list[str]]:
    """Return the names that belong together, and those that no rule matches."""
    groups: dict[GroupKey, list[tuple[Match, str]]] = {}
    others: list[str] = []
    for name in names:
        matching = [(number, match) for number, rule in enumerate(rules) if (match := rule.match(name)) is not None]
        if len(matching) > 1:
            patterns = [rules[number].left[match.place].text for number, match in matching]
            raise RefusedError(
                f"two rules of the key map match `{name}`",
                tensor=name,
                found=listed(map(repr, patterns)),
                hint="Give placeholders ranges, such as {n:0-31}, or write the names out",
            )
        if matching:
            [(number, match)] = matching
            groups.setdefault((number, match.values), []).append((match, name))
        else:
            others.append(name)
    return groups, others


def planned(rules: Sequence[Rule], names: Iterable[str]) -> Plan:
    """Return what becomes of names; refuse parts without which the others mean nothing."""
    groups, others = grouped(rules, names)
    complete = {key: Group(rules[key[0]], key[1], _rows(rules[key[0]], members)) for key, members in groups.items()}
    return Plan(complete, tuple(others))


def _rows(rule: Rule, members: Sequence[tuple[Match, str]]) -> tuple[tuple[str, ...], ...]:
    """Return the names of a group in their order, or refuse gaps."""
    found = {(match.number, match.place): name for match, name in members}
    is_parts = rule.parts_side == "left"
    numbers = sorted({match.number or 0 for match, _ in members}) if is_parts and rule.stack else [0]
    if numbers[-1] >= MAX_STACKED:
        raise LimitError(
            f"`{members[0][1]}` is one of too many parts",
            expected=f"at most {MAX_STACKED:,}",
            found=f"{numbers[-1]:,}",
        )
    keys = [number if rule.stack and is_parts else None for number in range(numbers[-1] + 1)]
    values = dict(members[0][0].values)
    missing = [
        pattern.filled(values if number is None else {**values, str(rule.stack): str(number)})
        for number in keys
        for place, pattern in enumerate(rule.left)
        if (number, place) not in found
    ]
    if missing:
        whole = filled(rule.right[0], members[0][0].values) if is_parts else members[0][1]
        raise RefusedError(
            f"{counted(len(missing), 'part')} of `{whole}` {'is' if len(missing) == 1 else 'are'} missing",
            tensor=missing[0],
            expected=listed((f"`{name}`" for name in missing), 10),
            found=counted(len(members), "part"),
            hint="Complete the checkpoint, or drop the other parts with `drop` (--drop)",
        )
    return tuple(tuple(found[number, place] for place in range(len(rule.left))) for number in keys)
