"""Which positions of a dimension each rank gets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.errors import SelectionError, UnsupportedError
from tensorkeep.tensor_parallel._rules import Rule, parse_rule, ranges_of_ranks


@pytest.mark.parametrize(
    ("style", "ndim", "dim"),
    [
        ("colwise", 1, 0),
        ("colwise", 2, 0),
        ("colwise", 3, 1),
        ("rowwise", 1, None),
        ("rowwise", 2, 1),
        ("rowwise", 3, 2),
        ("embedding_rowwise", 2, 0),
        ("embedding_colwise", 2, 1),
        ("experts", 3, 0),
        ("replicate", 2, None),
        ("colwise", 0, None),
    ],
)
def test_a_style_divides_a_dimension(style: str, ndim: int, dim: int | None) -> None:
    assert parse_rule(style).dim_of(ndim) == dim


@pytest.mark.parametrize(
    ("style", "extent", "n_ranks", "expected"),
    [
        ("colwise", 8, 2, [((0, 4),), ((4, 8),)]),
        ("colwise", 8, 1, [((0, 8),)]),
        ("packed_colwise", 8, 2, [((0, 2), (4, 6)), ((2, 4), (6, 8))]),
        ("packed_colwise", 8, 1, [((0, 4), (4, 8))]),
        ("colwise:heads=4", 16, 2, [((0, 8),), ((8, 16),)]),
        ("colwise:kv_heads=1", 4, 2, [((0, 4),), ((0, 4),)]),
        ("colwise:kv_heads=2", 8, 4, [((0, 4),), ((0, 4),), ((4, 8),), ((4, 8),)]),
        ("packed_colwise:heads=4,1,1", 12, 2, [((0, 4), (8, 10), (10, 12)), ((4, 8), (8, 10), (10, 12))]),
    ],
)
def test_ranges(style: str, extent: int, n_ranks: int, expected: list[tuple[tuple[int, int], ...]]) -> None:
    assert ranges_of_ranks(extent, parse_rule(style), n_ranks) == expected


@pytest.mark.parametrize(
    ("style", "extent", "n_ranks"),
    [
        ("colwise", 9, 2),
        ("colwise", 0, 2),
        ("packed_colwise", 9, 2),
        ("packed_colwise", 6, 2),
        ("colwise:heads=2", 8, 4),
        ("colwise:heads=3", 8, 2),
        ("colwise:kv_heads=3", 12, 2),
        ("packed_colwise:heads=2,2,2", 12, 4),
    ],
)
def test_what_cannot_be_divided_equally_is_refused(style: str, extent: int, n_ranks: int) -> None:
    with pytest.raises(SelectionError):
        ranges_of_ranks(extent, parse_rule(style), n_ranks)


@pytest.mark.parametrize(
    "text",
    ["", "column", "colwise:", "colwise:heads=0", "colwise:heads=2,2", "packed_colwise:heads=2", "replicate:heads=2"],
)
def test_other_styles_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedError):
        parse_rule(text)


@given(st.integers(1, 12), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 8))
def test_all_ranks_together_have_everything_and_equally_much(size: int, heads: list[int], n_ranks: int) -> None:
    rule = Rule("rows", len(heads), tuple(heads), repeats=True)
    try:
        found = ranges_of_ranks(size * sum(heads), rule, n_ranks)
    except SelectionError:
        assert any(n % n_ranks and n_ranks % n for n in heads)
        return
    held = [{position for begin, end in ranges for position in range(begin, end)} for ranges in found]
    assert set().union(*held) == set(range(size * sum(heads)))
    assert len({len(each) for each in held}) == 1
    assert all(a[1] <= b[0] for ranges in found for a, b in pairwise(ranges))
