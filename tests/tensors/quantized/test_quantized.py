"""Blocks are the numbers that the gguf package gives, bit for bit; types it does not compute are held to ggml."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

from tensorkeep.formats.gguf import GGML_TYPES_BY_NAME
from tensorkeep.tensors.quantized import DEQUANTIZED, dequantize, quantize_q8_0
from tensorkeep.tensors.quantized._layouts import LAYOUTS

N_BLOCKS = 3000
NOT_IN_GGUF = {"Q1_0", "Q2_0", "Q8_K"}


def blocks_of(name: str) -> npt.NDArray[np.uint8]:
    nbytes = GGML_TYPES_BY_NAME[name].block_nbytes
    blocks = np.random.default_rng(5).integers(0, 256, (N_BLOCKS, nbytes), np.uint8)
    blocks[0], blocks[1] = 0, 255
    return blocks


def bits(numbers: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    return np.ascontiguousarray(numbers, np.float32).reshape(-1).view(np.uint32)


@pytest.mark.parametrize("name", sorted(set(DEQUANTIZED) - NOT_IN_GGUF))
def test_numbers_are_those_of_gguf_bit_for_bit(name: str) -> None:
    blocks = blocks_of(name)

    with np.errstate(all="ignore"):
        expected = quants.dequantize(blocks, GGMLQuantizationType[name])
    np.testing.assert_array_equal(bits(dequantize(name, blocks.reshape(-1))), bits(expected))


def test_all_types_of_gguf_and_ggml_are_computed() -> None:
    quantized = {name for name, type_ in GGML_TYPES_BY_NAME.items() if type_.is_quantized}

    assert quantized - set(DEQUANTIZED) == {"Q8_1"}
    assert {type_.name for type_ in quants._type_traits} - {"BF16"} == set(DEQUANTIZED) - NOT_IN_GGUF


@pytest.mark.parametrize("name", DEQUANTIZED)
def test_layouts_have_the_size_of_their_type(name: str) -> None:
    assert LAYOUTS[name].itemsize == GGML_TYPES_BY_NAME[name].block_nbytes
    assert dequantize(name, blocks_of(name)).size == N_BLOCKS * GGML_TYPES_BY_NAME[name].n_per_block


def test_q1_0_is_a_scale_with_128_signs() -> None:
    block = np.frombuffer(struct.pack("<e", 1.5) + bytes([0b0000_0101]) + bytes(15), np.uint8)

    assert dequantize("Q1_0", block).tolist() == [1.5, -1.5, 1.5, *[-1.5] * 125]


def test_q2_0_is_a_scale_times_64_numbers_from_minus_1_to_2() -> None:
    block = np.frombuffer(struct.pack("<e", 0.5) + bytes([0b11_10_01_00]) + bytes(15), np.uint8)

    assert dequantize("Q2_0", block).tolist() == [-0.5, 0, 0.5, 1, *[-0.5] * 60]


def test_q8_k_is_a_wide_scale_times_256_numbers() -> None:
    block = np.frombuffer(struct.pack("<f", 0.1) + bytes([1, 255]) + bytes(254) + bytes(32), np.uint8)

    assert dequantize("Q8_K", block).tolist() == [np.float32(0.1), -np.float32(0.1), *[0] * 254]


@pytest.mark.parametrize(
    ("scale", "expected"), [(0, 2.0**-128), (1, 2.0**-127), (2, 2.0**-126), (127, 0.5), (254, 2.0**126)]
)
def test_scales_of_mxfp4_are_powers_of_two(scale: int, expected: float) -> None:
    block = np.frombuffer(bytes([scale, 0xA2]) + bytes(15), np.uint8)

    numbers = dequantize("MXFP4", block)

    assert (numbers[0], numbers[16]) == (2 * expected, -2 * expected)


def test_quantized_as_gguf_does_bit_for_bit() -> None:
    rng = np.random.default_rng(2)
    numbers = (rng.standard_normal((500, 32)) * 10.0 ** rng.integers(-8, 8, (500, 1))).astype(np.float32)
    numbers[0], numbers[1], numbers[2] = 0, 0.5, np.arange(32) - 16
    numbers[3, 5] = 127 * 65504.0
    with np.errstate(all="ignore"):
        expected = quants.quantize(numbers, GGMLQuantizationType.Q8_0)

    found = quantize_q8_0(numbers)

    np.testing.assert_array_equal(found.reshape(-1), expected.reshape(-1))


def test_sizes_are_those_of_gguf() -> None:
    for type_, (n_per_block, nbytes) in GGML_QUANT_SIZES.items():
        ours = GGML_TYPES_BY_NAME[type_.name]
        assert ours.n_per_block == n_per_block
        assert ours.block_nbytes == nbytes or type_.name == "Q8_1"


def test_what_is_not_finite_stays_so() -> None:
    block = np.frombuffer(struct.pack("<e", math.inf) + bytes([1, 0]) + bytes(30), np.uint8)

    numbers = dequantize("Q8_0", block)

    assert numbers[0] == math.inf
    assert math.isnan(numbers[1])
