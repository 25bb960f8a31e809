"""Elements narrower than a byte: the order of the bits, against a plain reading and against torch."""

from __future__ import annotations

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given

from tensorkeep.arrays.elements import pack, unpack


def plain_unpack(packed: bytes, bits: int) -> list[int]:
    """Read the bytes as one number, lowest bits first, and cut it up."""
    stream = int.from_bytes(packed, "little")
    return [stream >> place & (1 << bits) - 1 for place in range(0, len(packed) * 8 // bits * bits, bits)]


def as_bytes(content: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(content, np.uint8)


@pytest.mark.parametrize("bits", [4, 6])
@given(content=st.binary(max_size=30))
def test_elements_are_one_stream_of_bits_from_the_lowest(bits: int, content: bytes) -> None:
    expected = plain_unpack(content, bits)

    assert unpack(as_bytes(content), bits, 0, len(expected)).tolist() == expected


@pytest.mark.parametrize("bits", [4, 6])
@given(content=st.binary(min_size=12, max_size=12), first=st.integers(0, 16), count=st.integers(0, 16))
def test_any_elements_are_taken_out(bits: int, content: bytes, first: int, count: int) -> None:
    expected = plain_unpack(content, bits)[first : first + count]

    assert unpack(as_bytes(content), bits, first, len(expected)).tolist() == expected


@pytest.mark.parametrize("bits", [4, 6])
@given(groups=st.lists(st.tuples(*[st.integers(0, 255)] * 4), max_size=8))
def test_packing_is_the_way_back_and_drops_what_is_above_the_bits(bits: int, groups: list[tuple[int, ...]]) -> None:
    elements = np.array(groups, np.uint8).reshape(-1)

    packed = pack(elements, bits)

    assert packed.dtype == np.uint8
    assert len(packed) == len(elements) * bits // 8
    assert plain_unpack(packed.tobytes(), bits) == [element & (1 << bits) - 1 for element in elements.tolist()]
    assert unpack(packed, bits, 0, len(elements)).tolist() == (elements & (1 << bits) - 1).tolist()


def test_bits_are_what_ml_dtypes_calls_them() -> None:
    """The same bits in memory mean the same numbers, so a file's nibbles can be viewed as ml_dtypes' elements."""
    values = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32).tolist()

    assert values == [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


def test_the_first_of_two_is_in_the_low_half_as_in_torch() -> None:
    packed = torch.tensor([[0x21, 0x43]], dtype=torch.uint8).view(torch.float4_e2m1fn_x2)

    assert unpack(packed.view(torch.uint8).numpy().reshape(-1), 4, 0, 4).tolist() == [1, 2, 3, 4]
    assert pack(np.array([1, 2, 3, 4], np.uint8), 4).tolist() == [0x21, 0x43]
