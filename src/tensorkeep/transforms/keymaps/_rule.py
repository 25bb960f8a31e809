"""One rule of a key map: which tensors become which, and how. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.transforms.keymaps._pattern import Pattern

Side: TypeAlias = Literal["left", "right"]

MAX_STACKED: Final = 65_536
"""Tensors that are stacked, or a stack is split into; models have a few hundred experts."""


class Rule(msgspec.Struct, frozen=True):
    """Turns tensors on the left into tensors on the right. One side has the whole, and the other its parts.

    Attributes:
        left: Patterns of names on the left.
        right: Patterns of names on the right.
        stack: The placeholder that numbers stacked parts; None if none are.
        along: The dimension of the parts along which several patterns' tensors follow each other.
        sizes: Their extents in it; None if they are equal.
        order: Dimensions of a tensor on the left, in the order of those on the right; None if they are equal.
        heads: The rows of each of so many heads are pairs on the left, and halves on the right; None if they stay.
        is_back: Whether rows are halves on the left, and pairs on the right.
    """

    left: tuple[Pattern, ...]
    right: tuple[Pattern, ...]
    stack: str | None = None
    along: int = 0
    sizes: tuple[int, ...] | None = None
    order: tuple[int, ...] | None = None
    heads: int | None = None
    is_back: bool = False

    def __post_init__(self) -> None:
        self._check_sides()
        if self.heads is not None and (self.heads < 1 or self.order is not None):
            raise self.wrong("`heads` is not a positive number, or is used with `order`")
        if self.along < 0:
            raise self.wrong("`along` is negative")
        if self.order is not None and sorted(self.order) != list(range(len(self.order))):
            raise self.wrong("`order` does not list each dimension once, from 0")
        parts = len(self.parts)
        if self.sizes is not None and (len(self.sizes) != parts or parts == 1 or min(self.sizes) < 1):
            raise self.wrong("`sizes` does not have a positive number for each of several parts")

    def _check_sides(self) -> None:
        if not self.left or not self.right or (len(self.left) > 1 and len(self.right) > 1):
            raise self.wrong("one side must be one name")
        if len(self.wholes) > 1:
            raise self.wrong("the side without the stacked placeholder must be one name")
        whole = set(self.wholes[0].names)
        expected = whole if self.stack is None else whole | {self.stack}
        if self.stack in whole or any(set(pattern.names) != expected for pattern in self.parts):
            raise self.wrong(
                "both sides need the same placeholders, except the stacked one, which belongs on one side only"
            )

    @property
    def parts_side(self) -> Side:
        """The side that has the parts."""
        if self.stack is not None:
            return "left" if any(self.stack in pattern.names for pattern in self.left) else "right"
        return "right" if len(self.right) > 1 else "left"

    @property
    def parts(self) -> tuple[Pattern, ...]:
        """The patterns of the parts."""
        return self.left if self.parts_side == "left" else self.right

    @property
    def wholes(self) -> tuple[Pattern, ...]:
        """The patterns of the whole: one."""
        return self.right if self.parts_side == "left" else self.left

    @property
    def computes(self) -> bool:
        """Whether tensors change in more than their names."""
        return bool(self.stack or len(self.parts) > 1 or self.order or self.heads)

    def inverse(self) -> Rule:
        """Return the rule in the other direction."""
        order = None if self.order is None else tuple(self.order.index(axis) for axis in range(len(self.order)))
        return msgspec.structs.replace(self, left=self.right, right=self.left, order=order, is_back=not self.is_back)

    def match(self, name: str) -> Match | None:
        """Return how a name on the left matches; None if it does not."""
        for place, pattern in enumerate(self.left):
            values = pattern.match(name)
            if values is not None:
                number = int(values.pop(self.stack)) if self.stack in values else None
                return Match(tuple(sorted(values.items())), place, number)
        return None

    def wrong(self, what: str) -> FormatError:
        """Return the error for this rule."""
        sides = " and ".join(str([pattern.text for pattern in side]) for side in (self.left, self.right))
        return FormatError(f"a rule of the key map is impossible: {what}", found=sides)


class Match(msgspec.Struct, frozen=True):
    """How a name matches a rule.

    Attributes:
        values: The placeholders' names and values, without the stacked one.
        place: Which of the patterns it is.
        number: The number of the stacked part.
    """

    values: tuple[tuple[str, str], ...]
    place: int
    number: int | None


def filled(
    pattern: Pattern, match_values: tuple[tuple[str, str], ...], extra: Mapping[str, str] | None = None
) -> str:
    """Return the name that a pattern gives for the values of a match."""
    return pattern.filled({**dict(match_values), **(extra or {})})
