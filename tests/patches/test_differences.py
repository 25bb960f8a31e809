"""Differences as bytes: they come back exactly, in both directions, and broken ones are errors of ours."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorkeep.deltas.encoding._differences import BLOCK_LENGTH, decode, differences, encode
from tensorkeep.errors import FormatError
from tests.support.soak import SEED, rounds

WIDTHS = ("u1", "u2", "u4", "u8")


def words(rng: np.random.Generator, n: int, width: str) -> np.ndarray[Any, Any]:
    return rng.integers(0, 256, n * np.dtype(width).itemsize, np.uint8).view(width)


def changed(old: np.ndarray[Any, Any], rng: np.random.Generator, share: float) -> np.ndarray[Any, Any]:
    new = old.copy()
    places = rng.random(len(old)) < share
    new[places] += words(rng, int(places.sum()), old.dtype.str)
    return new


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("share", [0, 0.0005, 0.01, 0.3, 1])
@pytest.mark.parametrize("n", [1, 300, BLOCK_LENGTH])
def test_differences_come_back(width: str, share: float, n: int) -> None:
    rng = np.random.default_rng(n)
    old = words(rng, n, width)
    new = changed(old, rng, share)

    found = differences(old, new)

    if found is None:
        assert np.array_equal(old, new)
        return
    data = encode(found)
    assert len(data) <= old.nbytes * 1.01 + 100
    read = decode(data, n, old.dtype)
    there = old.copy()
    read.apply(there)
    assert np.array_equal(there, new)
    read.apply(there, "back")
    assert np.array_equal(there, old)


@settings(max_examples=rounds(60, 5000), deadline=None)
@given(st.data())
@pytest.mark.soak
def test_any_bytes_give_differences_or_an_error(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    width = data.draw(st.sampled_from(WIDTHS))
    n = data.draw(st.integers(1, 3000))
    old = words(rng, n, width)
    found = differences(old, changed(old, rng, data.draw(st.sampled_from([0.01, 0.1, 0.9]))))
    broken = bytearray(encode(found) if found is not None else b"\0" * 20)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, min(30, len(broken) - 1)))] = data.draw(st.integers(0, 255))
    broken = broken[: data.draw(st.integers(0, len(broken)))] + data.draw(st.binary(max_size=4))

    with suppress(FormatError):
        decode(broken, n, old.dtype).apply(old)


def test_every_truncation_is_an_error() -> None:
    rng = np.random.default_rng(SEED)
    old = words(rng, 2000, "u2")
    for share in (0.01, 0.9):
        found = differences(old, changed(old, rng, share))
        assert found is not None
        data = encode(found)
        for length in range(0, len(data), max(1, len(data) // 300)):
            with pytest.raises(FormatError):
                decode(data[:length], 2000, old.dtype)


def test_what_is_inflated_is_never_more_than_was_promised() -> None:
    from zlib_ng import zlib_ng

    bomb = zlib_ng.compress(bytes(2**28), 9, -15)
    head = b"\x01" + (1000).to_bytes(4, "little") + bytes(4)

    with pytest.raises(FormatError, match="wrong size"):
        decode(head + b"\x01" + len(bomb).to_bytes(4, "little") + bomb, 1000, np.dtype("u1"))
