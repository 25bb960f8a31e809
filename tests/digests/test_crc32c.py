"""CRC-32C: the values of its standard, of a loop over bits, and of TensorFlow's masked form."""

from __future__ import annotations

import numpy as np
import pytest

from tensorkeep.digests import CRC32C, Crc32c, crc32c, masked, unmasked

RANDOM = np.random.default_rng(7)

STANDARD = [  # RFC 3720, B.4
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (b"123456789", 0xE3069283),
    (b"", 0),
]


def by_bits(data: bytes) -> int:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(("data", "crc"), STANDARD)
def test_the_standard_gives_the_same(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


@pytest.mark.parametrize(
    "nbytes",
    [1, 2, 3, 4, 5, 7, 8, 9, 255, 256, 257, 6772, 6773, 6774, 13_000, 54_211, 54_212, 54_217, 524_289, 1_200_000],
)
def test_a_loop_over_bytes_gives_the_same_at_any_length(nbytes: int) -> None:
    data = RANDOM.bytes(nbytes)

    assert crc32c(data) == by_bits(data)


@pytest.mark.parametrize("nbytes", [250, 5001, 60_000])
def test_it_may_come_in_pieces(nbytes: int) -> None:
    data = RANDOM.bytes(200_003)
    sum_ = Crc32c()

    for start in range(0, len(data), nbytes):
        sum_.update(memoryview(data)[start : start + nbytes])

    assert sum_.value() == by_bits(data)
    assert sum_.value() == by_bits(data), "asking does not change it"


def test_the_algorithm_gives_big_endian_bytes() -> None:
    hasher = CRC32C.new(False)
    hasher.update(memoryview(b"123456789"))

    assert CRC32C.shown(hasher.digest()) == "0xe3069283"


def test_the_masked_form_can_be_undone() -> None:
    assert masked(0) == 0xA282EAD8
    assert all(unmasked(masked(crc)) == crc for crc in (0, 1, 0xE3069283, 0xFFFFFFFF, 0x80000000))
