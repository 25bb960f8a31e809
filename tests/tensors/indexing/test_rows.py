"""The places of a region's bytes in its tensor, and of some of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tensorkeep.tensors import Region, Rows, rows_of, rows_within


def bytes_of(rows: list[Rows]) -> list[int]:
    """Return the byte of the tensor at which each byte of the runs is."""
    return [
        each.first + row * each.step + byte
        for each in rows
        for row in range(each.n_rows)
        for byte in range(each.nbytes)
    ]


@pytest.mark.parametrize(
    ("shape", "region"),
    [
        ((5, 4), Region((1, 0), (4, 4))),
        ((5, 4), Region((1, 1), (4, 3))),
        ((3, 4, 5), Region((0, 1, 2), (3, 4, 4))),
        ((2, 3, 2, 4), Region((0, 0, 0, 1), (2, 3, 2, 3))),
        ((7,), Region((2,), (6,))),
        ((), Region((), ())),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 1000])
def test_a_region_read_in_pieces_of_any_size_is_the_whole_region(
    shape: tuple[int, ...], region: Region, size: int
) -> None:
    whole = list(rows_of(region, shape, 2))
    places = bytes_of(whole)
    edges = [*range(0, len(places), size), len(places)]

    pieces = [list(rows_within(whole, start, stop)) for start, stop in pairwise(edges)]

    assert [bytes_of(piece) for piece in pieces] == [places[start:stop] for start, stop in pairwise(edges)]
    assert max(map(len, pieces)) <= 3 * len(whole)
