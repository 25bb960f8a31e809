"""Values as people read them, and columns of them."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from tensorkeep.cli.terminal._columns import Column, columns
from tensorkeep.texts import printable, shape_text, share_text, shortened, size_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("重み é́", "重み é́"),
        ("[red]markup[/red] :smile:", "[red]markup[/red] :smile:"),
        ("back\\slash", "back\\slash"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[31m\x07\x7f", r"\x1b[31m\x07\x7f"),
        ("\x9b31m\x85", r"\x9b31m\x85"),
        ("\u202eevil\u2066\u200b\ufeff", r"\u202eevil\u2066\u200b\ufeff"),
        ("\u2028\u2029\xa0", r"\u2028\u2029\xa0"),
        ("\udc80\ue000\U000e0001", r"\udc80\ue000\U000e0001"),
    ],
)
def test_what_a_terminal_could_obey_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_no_control_format_or_separator_character_gets_through() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))

    assert {unicodedata.category(char)[0] for char in printable(everything)} <= set("LMNPSZ")
    assert {char for char in printable(everything) if unicodedata.category(char)[0] == "Z"} == {" "}


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (9_994, "9.99 kB"),
        (9_995, "10.0 kB"),
        (99_949, "99.9 kB"),
        (99_950, "100 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (90_868_376, "90.9 MB"),
        (2_500_000_000, "2.50 GB"),
        (10**21, "1000 EB"),
    ],
)
def test_sizes_have_three_digits(nbytes: int, text: str) -> None:
    assert size_text(nbytes) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 0, ""), (0, 8, "0.0 %"), (1, 10**9, "<0.1 %"), (1, 3, "33.3 %"), (8, 8, "100.0 %")],
)
def test_shares(part: int, whole: int, text: str) -> None:
    assert share_text(part, whole) == text


def test_shapes() -> None:
    assert shape_text(()) == "[]"
    assert shape_text((30522, 384)) == "[30522, 384]"
    assert shape_text((1,) * 8) == "[1, 1, 1, 1, 1, 1, 1, 1]"
    assert shape_text((1,) * 2000) == "[1, 1, 1, 1, 1, 1, 1, 1, ... 1,992 more]"


def test_long_texts_say_how_long_they_are() -> None:
    assert shortened("abcd", 4) == "abcd"
    assert shortened("a" * 5000, 4) == "aaaa... (5,000 characters)"


def laid_out(layout: tuple[Column, ...], *rows: tuple[str, ...]) -> list[str]:
    lines = columns(layout, [[[(text, "")] for text in row] for row in rows])
    return ["".join(text for text, _ in line) for line in lines]


LAYOUT = (Column("name"), Column("n", "right"), Column("note"))


def test_columns_are_as_wide_as_what_stands_in_them() -> None:
    assert laid_out(LAYOUT, ("a", "1", "x"), ("bcdef", "100", ""), ("", "", "z")) == [
        "name     n  note",
        "a        1  x",
        "bcdef  100",
        "            z",
    ]


def test_wide_characters_take_two_cells_and_combining_marks_none() -> None:
    assert laid_out(LAYOUT, ("重み", "1", ""), ("e\u0301", "2", "")) == ["name  n  note", "重み  1", "e\u0301     2"]


def test_one_long_text_moves_only_its_own_row() -> None:
    assert laid_out(LAYOUT, ("a" * 1000, "1", "x"), ("b", "2", "y")) == [
        "name  n  note",
        "a" * 1000 + "  1  x",
        "b     2  y",
    ]


def clipped(width: int, *names: str) -> list[str]:
    lines = columns(LAYOUT[:2], [[[(name, "")], [("1", "")]] for name in names], width=width)
    return ["".join(text for text, _ in line) for line in lines]


def test_long_names_lose_their_middle_where_the_line_is_too_short() -> None:
    name = "encoder.layer.0.attention.self.query.weight"

    assert clipped(46, name) == ["name" + " " * 41 + "n", f"{name}  1"]
    assert clipped(33, "short", name)[1:] == ["short" + " " * 27 + "1", "encoder.layer.0…f.query.weight  1"]
    assert clipped(33, "重" * 40, "x" * 10_000)[1:] == [
        "重" * 7 + "…" + "重" * 7 + "   1",
        "x" * 15 + "…" + "x" * 14 + "  1",
    ]


def test_names_keep_20_cells_in_the_narrowest_line() -> None:
    assert clipped(1, "a" * 20, "b" * 21)[1:] == ["a" * 20 + "  1", "b" * 10 + "…" + "b" * 9 + "  1"]
