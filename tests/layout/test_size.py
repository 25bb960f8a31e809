"""Sizes as people write them: exact, in every unit, and refused where they could be meant otherwise."""

from __future__ import annotations

from decimal import Decimal

import pytest
from huggingface_hub.serialization._base import parse_size_to_int
from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.errors import UnsupportedError
from tensorkeep.layout import parse_size

FACTORS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}


@pytest.mark.parametrize(
    ("size", "nbytes"),
    [
        (1, 1),
        (5_000_000_000, 5_000_000_000),
        ("1B", 1),
        ("1000B", 1000),
        ("5GB", 5_000_000_000),
        ("5 GB", 5_000_000_000),
        (" 5gb\n", 5_000_000_000),
        ("5GiB", 5 * 2**30),
        ("5gib", 5 * 2**30),
        ("5GIB", 5 * 2**30),
        ("1.5GB", 1_500_000_000),
        ("1.5 GiB", 3 * 2**29),
        ("1.GB", 10**9),
        ("0.001KB", 1),
        ("1e3MB", 10**9),
        ("1E+3mb", 10**9),
        ("5e-3KB", 5),
        ("1.9B", 1),
        ("0.29GB", 290_000_000),  # 289,999,999 in floating point
        ("1.1TB", 1_100_000_000_000),
        ("9007199254740993B", 2**53 + 1),
    ],
)
def test_a_size_is_read_exactly(size: int | str, nbytes: int) -> None:
    assert parse_size(size) == nbytes


@pytest.mark.parametrize(
    "size",
    [
        *(0, -1, -(10**12), True, False, None, 5e9, Decimal(5), b"5GB", float("nan"), float("inf")),
        *("", " ", "5", "10", "1_000", "5G", "5M", "GB", "five GB", "5 giga", "5PB", "5ib", "5GBB", "5GB 3MB"),
        *("0B", "0GB", "0.0GiB", "0.9B", "1e-10GB", "1e-99TB", "-5MB", "+5MB", "5,5GB", "0x5GB", ".5GB", "5. e3GB"),
        *("nanGB", "infGB", "1e999GB", "1e1e1GB", "5 G B", "\u0665GB", "5\u212ab", "9" * 5000 + "GB", "5\0GB"),
    ],
)
def test_anything_else_is_refused_with_examples(size: object) -> None:
    with pytest.raises(UnsupportedError) as caught:
        parse_size(size)

    assert caught.value.found is not None
    assert "'5GB'" in str(caught.value)
    assert "'5GiB'" in str(caught.value)
    assert len(str(caught.value)) < 2000


@given(
    number=st.integers(1, 10**15),
    unit=st.sampled_from(sorted(FACTORS)),
    style=st.sampled_from([str.lower, str.upper, str]),
    space=st.sampled_from(["", " "]),
)
def test_whole_numbers_of_every_unit(number: int, unit: str, style: type[str], space: str) -> None:
    assert parse_size(f"{number}{space}{style(unit)}") == number * FACTORS[unit]


@given(nbytes=st.integers(1, 10**18), unit=st.sampled_from(["KB", "MB", "GB", "TB"]))
def test_a_decimal_fraction_gives_back_every_byte(nbytes: int, unit: str) -> None:
    text = f"{Decimal(nbytes) / FACTORS[unit]:f}"

    assert parse_size(text + unit) == nbytes


@given(number=st.integers(1, 10**6), unit=st.sampled_from(["KB", "MB", "GB", "TB"]))
def test_it_agrees_with_huggingface_hub(number: int, unit: str) -> None:
    assert parse_size(f"{number}{unit}") == parse_size_to_int(f"{number}{unit}")


@given(st.text(max_size=30) | st.from_regex(r"\A[0-9.eE+-]{1,12} ?[kKmMgGtT]?[iI]?[bB]\Z"))
def test_any_text_gives_a_size_or_one_error(text: str) -> None:
    try:
        nbytes = parse_size(text)
    except UnsupportedError:
        return

    assert nbytes >= 1
