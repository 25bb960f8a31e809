"""Key maps: the names that tensors have in one library, and their names and forms in another."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from tensorkeep.checkpoint import refuse_torn
from tensorkeep.errors import (
    FormatError,
    LimitError,
    RefusedError,
    TensorkeepError,
    TensorNotFoundError,
    as_transport_error,
)
from tensorkeep.tensors import LazyTensor, LazyTensors, TensorView
from tensorkeep.texts import counted, listed
from tensorkeep.transforms._view import view_of
from tensorkeep.transforms.keymaps._pattern import Pattern
from tensorkeep.transforms.keymaps._plan import Group, grouped, planned
from tensorkeep.transforms.keymaps._rule import Rule
from tensorkeep.transforms.keymaps._tensors import tensors_of

Others: TypeAlias = Literal["refuse", "keep", "drop"]
"""What becomes of tensors that no rule matches."""

_MAX_NBYTES: Final = 2**20
_MAX_RULES: Final = 10_000
_RULE_KEYS: Final = {"from", "to", "stack", "along", "sizes", "order", "heads"}
_KEYS: Final = {"rules", "others", "about"}


class KeyMapReport(msgspec.Struct, frozen=True):
    """How the names of two checkpoints fit a key map.

    Attributes:
        unmatched_left: Names on the left that no rule matches.
        unmatched_right: Names on the right that no rule matches.
        missing_right: Names on the left whose tensors are missing on the right.
        missing_left: Names on the right whose tensors are missing on the left.
        unused: Patterns of rules that match nothing on the left.
    """

    unmatched_left: tuple[str, ...]
    unmatched_right: tuple[str, ...]
    missing_right: tuple[str, ...]
    missing_left: tuple[str, ...]
    unused: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every name on either side has its counterpart."""
        return not (self.unmatched_left or self.unmatched_right or self.missing_right or self.missing_left)


class KeyMap(msgspec.Struct, frozen=True):
    """Rules that turn one library's tensor names into another's, and join, split or transpose the tensors.

        key_map = KeyMap.read("original-to-hf.toml")
        with tensorkeep.open("consolidated.00.pth") as file:
            tensorkeep.save_checkpoint(key_map.apply(file), "hf")

    Attributes:
        rules: The rules.
        others: What happens to tensors that no rule matches.
        about: What the map is for.
    """

    rules: tuple[Rule, ...]
    others: Others = "refuse"
    about: str = ""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> KeyMap:
        """Read a map from a TOML file.

        Raises:
            FormatError: If it is not a key map.
            LimitError: If it is larger than 1 MiB.
            TransportError: If it cannot be read.
        """
        with as_transport_error("could not read the key map", os.fspath(path)), open(path, "rb") as file:
            text = file.read(_MAX_NBYTES + 1)
        if len(text) > _MAX_NBYTES:
            raise LimitError("the key map is too large", path=os.fspath(path), expected=f"{_MAX_NBYTES:,} bytes")
        try:
            return cls.parse(text.decode())
        except UnicodeDecodeError:
            raise FormatError("the key map is not text", path=os.fspath(path), expected="TOML in UTF-8") from None
        except FormatError as error:
            raise error.with_fields(path=os.fspath(path)) from None

    @classmethod
    def parse(cls, text: str) -> KeyMap:
        """Read a map from the text of a TOML file.

        Raises:
            FormatError: If it is not a key map.
        """
        try:
            given = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise FormatError("the key map is not TOML", found=str(error)) from None
        _refuse_unknown(given, _KEYS, "the key map")
        others, about, rules = given.get("others", "refuse"), given.get("about", ""), given.get("rules")
        if others not in get_args(Others) or not isinstance(about, str):
            raise FormatError('`others` must be "refuse", "keep" or "drop", and `about` text', found=repr(others))
        if not isinstance(rules, list) or not 0 < len(rules) <= _MAX_RULES:
            raise FormatError("the key map has no rules", expected=f"1 to {_MAX_RULES:,} tables [[rules]]")
        return cls(tuple(map(_rule_of, rules)), others, about)

    def inverse(self) -> KeyMap:
        """Return the map from right to left."""
        return msgspec.structs.replace(self, rules=tuple(rule.inverse() for rule in self.rules))

    def apply(self, tensors: LazyTensors) -> TensorView:
        """Return a view with the names and forms on the right, without reading anything.

        Args:
            tensors: An open file, a checkpoint or a view with the names on the left.

        Returns:
            The view. Only rules with `order` or `heads` compute anything; other tensors are copied when it is saved.

        Raises:
            RefusedError: If a name has no rule, or two; if two tensors would get one name; if a part is missing, or
                its shape does not fit the rule. The message lists the names.
            TensorNotFoundError: If no rule matches any name (also a KeyError).
            DtypeError: If a tensor to be split or transposed packs elements into bytes (F4, F6).
            LimitError: If a tensor has more than 65,536 stacked parts.
        """
        try:
            return self._applied(tensors)
        except TensorkeepError as error:
            raise error.with_fields(path=error.path or tensors.path) from None

    def _applied(self, tensors: LazyTensors) -> TensorView:
        plan = planned(self.rules, tensors)
        if not plan.groups:
            raise TensorNotFoundError(
                "no rule of the key map matches any name",
                expected=listed(repr(pattern.text) for rule in self.rules for pattern in rule.left),
                hint="To apply the map in the other direction, use `inverse()` (--keys-back)",
            )
        if plan.others and self.others == "refuse":
            raise RefusedError(
                f"no rule of the key map matches {counted(len(plan.others), 'tensor')}",
                found=listed((f"`{name}`" for name in plan.others), 10),
                hint='Add rules, or others = "keep" or "drop" to the map',
            )
        computing = [group for group in plan.groups.values() if group.rule.computes]
        refuse_torn(tensors, {name for group in computing for name in group.names})
        group_of = {name: group for group in plan.groups.values() for name in group.names}
        kept = set(plan.others if self.others == "keep" else ())
        return view_of(tensors, _in_order(tensors, group_of, kept))

    def matches_any(self, names: Iterable[str]) -> bool:
        """Return whether a rule matches one of these names on the left."""
        return any(rule.match(name) is not None for name in names for rule in self.rules)

    def new_name(self, name: str) -> str:
        """Return the name on the right, if the map only renames: `tensors.rename(key_map.new_name)`.

        Raises:
            RefusedError: If the name has no rule, or two, or the map does more than rename.
        """
        if any(rule.computes for rule in self.rules):
            raise RefusedError(
                "this key map joins, splits or changes tensors",
                hint="Use `apply` (tensorkeep reshard --keys)",
            )
        groups, others = grouped(self.rules, [name])
        for number, values in groups:
            return self.rules[number].right[0].filled(dict(values))
        if others and self.others == "keep":
            return name
        raise RefusedError(f"`{name}` has no rule in the key map", tensor=name)

    def compare(self, left: Iterable[str], right: Iterable[str]) -> KeyMapReport:
        """Report which names on either side have no rule, or no counterpart on the other side.

        Args:
            left: The names on the left, such as an open checkpoint.
            right: The names on the right, such as the ones that a model expects.
        """
        left_groups, left_others = grouped(self.rules, left)
        right_groups, right_others = grouped(self.inverse().rules, right)
        used = {number for number, _ in left_groups}
        return KeyMapReport(
            unmatched_left=tuple(left_others),
            unmatched_right=tuple(right_others),
            missing_right=tuple(names[0][1] for key, names in left_groups.items() if key not in right_groups),
            missing_left=tuple(names[0][1] for key, names in right_groups.items() if key not in left_groups),
            unused=tuple(
                pattern.text for number, rule in enumerate(self.rules) if number not in used for pattern in rule.left
            ),
        )


def _in_order(tensors: LazyTensors, group_of: Mapping[str, Group], kept: set[str]) -> dict[str, LazyTensor]:
    """Return the new tensors, each in the place of the first that it is made of; refuse a name that occurs twice."""
    new: dict[str, LazyTensor] = {}
    origins: dict[str, str] = {}
    done: set[int] = set()

    def add(name: str, lazy: LazyTensor, origin: str) -> None:
        other = origins.setdefault(name, origin)
        if name in new:
            raise RefusedError(
                f"two tensors would be called `{name}`", tensor=name, found=f"`{other}` and `{origin}` before the map"
            )
        new[name] = lazy

    for old in tensors:
        group = group_of.get(old)
        if group is not None and id(group) not in done:
            done.add(id(group))
            for name, lazy in tensors_of(group, tensors):
                add(name, lazy, old)
        elif group is None and old in kept:
            add(old, tensors[old], old)
    return new


def _rule_of(given: Any) -> Rule:
    if not isinstance(given, dict):
        raise FormatError("a rule of the key map is not a table", found=repr(given)[:100])
    _refuse_unknown(given, _RULE_KEYS, "a rule of the key map")
    for key, kind in (("stack", str), ("along", int), ("heads", int)):
        if key in given and type(given[key]) is not kind:
            raise FormatError(f"`{key}` of a rule is not a {kind.__name__}", found=repr(given[key])[:100])
    return Rule(
        left=_patterns(given, "from"),
        right=_patterns(given, "to"),
        stack=given.get("stack"),
        along=given.get("along", 0),
        sizes=_numbers(given, "sizes"),
        order=_numbers(given, "order"),
        heads=given.get("heads"),
    )


def _patterns(given: Mapping[str, Any], key: str) -> tuple[Pattern, ...]:
    if key not in given:
        raise FormatError(f"a rule of the key map has no `{key}`", expected="a name, or a list of names")
    texts = given[key]
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise FormatError(f"`{key}` of a rule is not a name, or a list of names", found=repr(texts)[:100])
    return tuple(map(Pattern.of, texts))


def _numbers(given: Mapping[str, Any], key: str) -> tuple[int, ...] | None:
    if key not in given:
        return None
    numbers = given[key]
    if not isinstance(numbers, list) or not numbers or not all(type(number) is int for number in numbers):
        raise FormatError(f"`{key}` of a rule is not a list of numbers", found=repr(numbers)[:100])
    return tuple(numbers)


def _refuse_unknown(given: Mapping[str, Any], known: set[str], what: str) -> None:
    unknown = given.keys() - known
    if unknown:
        raise FormatError(
            f"{what} has unknown keys",
            expected=listed(f"`{key}`" for key in sorted(known)),
            found=listed(f"`{key}`" for key in sorted(unknown)),
        )
