"""How a tensor is divided among ranks: the styles of plans, and the ranges that each rank gets. Pure."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

import msgspec

from tensorkeep.errors import SelectionError, UnsupportedError

Axis: TypeAlias = Literal["rows", "columns", "first"]
"""What is divided: the last dimension but one (outputs), the last (inputs), or the first (experts, vocabulary)."""


class Rule(msgspec.Struct, frozen=True):
    """How tensors of one style are divided.

    Attributes:
        axis: The dimension; None for tensors that all ranks have whole.
        n_blocks: How many matrices of equal size lie one after another along it, each divided by itself.
        heads: Attention heads of each block, which are never divided, and to which the sizes of blocks are in
            proportion. Empty if any position may be a boundary.
        repeats: Whether heads go to several ranks if they are fewer, as heads of keys and values may. In a block that
            has fewer heads than another, they always may.
    """

    axis: Axis | None = None
    n_blocks: int = 1
    heads: tuple[int, ...] = ()
    repeats: bool = False

    def dim_of(self, ndim: int) -> int | None:
        """Return the dimension that is divided in a tensor; None if all ranks have all of it."""
        if self.axis is None or ndim == 0 or (self.axis == "columns" and ndim == 1):
            return None  # what is added to the outputs of all ranks together, such as a bias, is not divided
        return {"rows": max(ndim - 2, 0), "columns": ndim - 1, "first": 0}[self.axis]


WHOLE: Final = Rule()
_ROWS: Final = Rule("rows")
_COLUMNS: Final = Rule("columns")

STYLES: Final[dict[str, Rule]] = {
    "colwise": _ROWS,
    "colwise_rep": _ROWS,
    "colwise_gather_output": _ROWS,
    "rowwise": _COLUMNS,
    "rowwise_rep": _COLUMNS,
    "rowwise_split_input": _COLUMNS,
    "packed_colwise": Rule("rows", 2),
    "packed_rowwise": Rule("columns", 2),
    "embedding_rowwise": Rule("first"),
    "embedding_colwise": _COLUMNS,
    "experts": Rule("first"),
    "grouped_gemm": Rule("first"),
    "replicate": WHOLE,
}
"""Styles by the names that transformers gives them; `experts` is ours for its `grouped_gemm`.

A linear layer keeps its weight as (outputs, inputs), so `colwise`, which divides the outputs, divides rows.
"""

_match = re.compile(
    r"(?P<style>[a-z_]+)(?::(?P<kind>kv_)?heads=(?P<heads>[1-9][0-9]{0,8}(?:,[1-9][0-9]{0,8})*))?"
).fullmatch


def parse_rule(text: str) -> Rule:
    """Parse a style, such as `"colwise"` or `"packed_colwise:heads=32,8,8"`."""
    found = _match(text)
    if found is None or found["style"] not in STYLES:
        raise UnsupportedError(
            "there is no such way to divide a tensor",
            expected="one of " + ", ".join(STYLES) + "; with `:heads=32` or `:kv_heads=8` for attention heads",
            found=repr(text),
        )
    rule = STYLES[found["style"]]
    if found["heads"] is None:
        return rule
    heads = tuple(map(int, found["heads"].split(",")))
    if rule.axis is None or (len(heads) > 1) != (rule.n_blocks > 1):
        raise UnsupportedError(
            "the numbers of heads do not match the style",
            expected="one number for each block of a packed style, otherwise a single number",
            found=repr(text),
        )
    return Rule(rule.axis, len(heads), heads, repeats=found["kind"] is not None)


def ranges_of_ranks(extent: int, rule: Rule, n_ranks: int) -> list[tuple[tuple[int, int], ...]]:
    """Return the ranges of a dimension that each rank gets, in order; raise SelectionError if they are not whole."""
    units = rule.heads or _blocks(extent, rule.n_blocks)
    if not extent:
        raise SelectionError("there is nothing to divide")
    if extent % sum(units):
        raise SelectionError(
            f"{extent:,} positions are not {sum(units):,} {'heads' if rule.heads else 'blocks'} of equal size"
        )
    size = extent // sum(units)
    found: list[list[tuple[int, int]]] = [[] for _ in range(n_ranks)]
    begin = 0
    for n_units in units:
        is_repeatable = bool(rule.heads) and (rule.repeats or n_units < max(units))
        for rank, ranges in enumerate(found):
            first, last = _share(n_units, rank, n_ranks, is_repeatable=is_repeatable, of_heads=bool(rule.heads))
            ranges.append(((begin + first) * size, (begin + last) * size))
        begin += n_units
    return [tuple(ranges) for ranges in found]


def _blocks(extent: int, n_blocks: int) -> tuple[int, ...]:
    if extent % n_blocks:
        raise SelectionError(f"{extent:,} positions are not {n_blocks} blocks of equal size")
    return (extent // n_blocks,) * n_blocks


def _share(n_units: int, rank: int, n_ranks: int, *, is_repeatable: bool, of_heads: bool) -> tuple[int, int]:
    if n_units % n_ranks == 0:
        each = n_units // n_ranks
        return rank * each, (rank + 1) * each
    if is_repeatable and n_ranks % n_units == 0:
        first = rank * n_units // n_ranks
        return first, first + 1
    what = "heads" if of_heads else "positions"
    raise SelectionError(f"{n_units:,} {what} cannot be divided equally among {n_ranks} ranks")
