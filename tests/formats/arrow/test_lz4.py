"""The decoder of LZ4 frames agrees with pyarrow's, and refuses all else in bounded time and memory."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.errors import FormatError
from tensorkeep.formats.arrow._lz4 import decode_by_library, decode_in_python, decode_lz4

LZ4 = pa.Codec("lz4")


Decode = Callable[[bytes, int], Any]


@pytest.fixture(params=["python", "lz4"], scope="module")
def decode(request: pytest.FixtureRequest) -> Decode:
    if request.param == "python":
        return decode_in_python
    return partial(decode_by_library, importlib.import_module("lz4.frame"))


def compressed(data: bytes) -> bytes:
    return bytes(LZ4.compress(data))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"a",
        bytes(100_000),
        b"abc" * 50_000,
        np.arange(50_000).tobytes(),
        np.random.default_rng(0).bytes(300_000),
        np.random.default_rng(0).integers(0, 3, 300_000, np.uint8).tobytes(),
    ],
)
def test_frames_are_decoded(decode: Decode, data: bytes) -> None:
    assert decode(compressed(data), len(data)) == data


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_are_decoded(decode: Decode, data: bytes, times: int) -> None:
    assert decode(compressed(data * times), len(data) * times) == data * times


def test_one_of_them_decodes_files() -> None:
    assert decode_lz4(compressed(b"abc" * 99), 297) == b"abc" * 99


def test_another_length_is_refused(decode: Decode) -> None:
    frame = compressed(bytes(1000))

    for nbytes in (0, 999, 1001, 10**12):
        with pytest.raises(FormatError):
            decode(frame, nbytes)


def test_a_frame_without_an_end_is_refused(decode: Decode) -> None:
    frame = compressed(bytes(1000))

    with pytest.raises(FormatError):
        decode(frame[:-4], 1000)


def test_damage_is_refused_or_gives_as_many_bytes(decode: Decode) -> None:
    data = b"the quick brown fox " * 30 + bytes(300)
    frame = compressed(data)
    chance = random.Random(1)
    for _ in range(5_000):
        changed = bytearray(frame)
        for _ in range(chance.randint(1, 3)):
            changed[chance.randrange(len(frame))] = chance.randrange(256)
        try:
            assert len(decode(bytes(changed[: chance.randint(0, 2 * len(frame))]), len(data))) == len(data)
        except FormatError:
            continue
