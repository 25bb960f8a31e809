"""The text of an index: what is read, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tensorkeep.cli.inputs._index_syntax import parse_index_text
from tensorkeep.errors import SelectionError

ACCEPTED = [
    ("0", (0,)),
    ("-1", (-1,)),
    ("[0]", (0,)),
    (" [ 0 ] ", (0,)),
    ("0:4, :8", (slice(0, 4), slice(None, 8))),
    ("[0:4, :8]", (slice(0, 4), slice(None, 8))),
    ("[::-1]", (slice(None, None, -1),)),
    ("-3:", (slice(-3, None),)),
    ("None:None:2", (slice(None, None, 2),)),
    ("...", (...,)),
    ("[..., 0]", (..., 0)),
    ("None, 1", (None, 1)),
    ("[[0, 2]]", ([0, 2],)),
    ("[0, 2]", (0, 2)),
    ("[0, 2], [1]", ([0, 2], [1])),
    ("[0, 2], 1:3", ([0, 2], slice(1, 3))),
    ("[[0, -2], :]", ([0, -2], slice(None))),
    ("[[True, False]]", ([True, False],)),
    ("[(1)]", (1,)),
    ("1,", (1,)),
    ("[(0, 1)]", (0, 1)),
    ("[()]", ()),
    ("1_000, 0x10", (1000, 16)),
]

REFUSED = [
    *("", " ", "[]", "[[]]", "[", "]", "0]", "[0", "[0][1]", "x[0]", "_", "_[0]", "x", "0 0", "1 if 1 else 0"),
    *(
        "1.0",
        "'a'",
        "b'a'",
        "1j",
        "True",
        "False",
        "-True",
        "+1",
        "~1",
        "--1",
        "2**3",
        "1+1",
        "not 1",
        "1:2.0",
        "x:",
        "1:x",
    ),
    *("[[0, True]]", "[[0, 1.0]]", "[[[0]]]", "[[None]]", "(0, (1, 2))", "[0, ()]", "{0}", "{0: 1}", "*[0]", "[*x]"),
    *(
        "__import__('os')",
        "f()",
        "a.b",
        "lambda: 0",
        "(y := 1)",
        "[i for i in (0,)]",
        "f'{0}'",
        "0; 1",
        "0\nimport os",
    ),
    *("0] + [0", "0], __import__('os')[0", "\0", "[" * 5000, "-" * 100_000 + "1", "9" * 5000, "1is 2"),
]


@pytest.mark.parametrize(("text", "index"), ACCEPTED)
def test_literals_are_read(text: str, index: tuple[object, ...]) -> None:
    assert parse_index_text(text) == index


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: repr(text[:24]))
def test_all_else_is_refused_without_a_warning(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SelectionError, match="not an index"):
            parse_index_text(text)


def test_a_step_of_zero_is_refused() -> None:
    with pytest.raises(SelectionError, match="slice step cannot be zero"):
        parse_index_text("[::0]")


@given(arrays.basic_indices((4, 5, 6), allow_newaxis=True, allow_ellipsis=True))
def test_what_python_writes_is_read_back(index: object) -> None:
    items = index if isinstance(index, tuple) else (index,)
    text = ", ".join(_written(item) for item in items)
    values = np.arange(120).reshape(4, 5, 6)

    if items:
        np.testing.assert_array_equal(values[parse_index_text(f"[{text}]")], values[items])
    else:
        with pytest.raises(SelectionError):
            parse_index_text(text)


@given(st.text(max_size=20))
def test_any_text_is_an_index_or_a_selection_error(text: str) -> None:
    try:
        items = parse_index_text(text)
    except SelectionError:
        return
    assert all(item is None or item is ... or isinstance(item, (int, slice, list)) for item in items)


def _written(item: object) -> str:
    if isinstance(item, slice):
        return ":".join("" if part is None else str(part) for part in (item.start, item.stop, item.step))
    return "..." if item is ... else str(item)
