"""The literals of array headers: what `ast.literal_eval` reads, read the same; all else refused, in bounded time."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.errors import FormatError
from tensorkeep.formats.npy._literal import parse_literal

VALUES = st.recursive(
    st.integers(0, 10**18) | st.booleans() | st.none() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_what_repr_writes_is_read_back(value: object) -> None:
    assert parse_literal(repr(value)) == value


@given(st.text(alphabet="{}()[],:'\"\\ nTrueFalseNone0123456789xu-+.#L\n", max_size=40))
def test_whatever_is_accepted_means_the_same_to_python(text: str) -> None:
    try:
        value = parse_literal(text)
    except FormatError:
        return
    if "L" not in text:
        assert ast.literal_eval(text.strip()) == value


def test_long_integers_of_python_2() -> None:
    assert parse_literal("{'shape': (10L, 2L)}") == {"shape": (10, 2)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 2",
        "-1",
        "+1",
        "1.0",
        "1e3",
        "0x10",
        "007",
        "10LL",
        "1" * 20,
        "1j",
        "(3)",
        "(,)",
        "(1,,)",
        "[1 2]",
        "{1: 2}",
        "{'a'}",
        "{'a': 1, 'a': 2}",
        "{'a': }",
        "{'a': 1 'b': 2}",
        "{**{}}",
        "'a' 'b'",
        "b'a'",
        "u'a'",
        "f'{a}'",
        "r'a'",
        "'a",
        "'\\q'",
        "'\\N{DASH}'",
        "'\\U00110000'",
        "'''a'''",
        "True1",
        "true",
        "name",
        "f()",
        "().__class__",
        "[x for x in ()]",
        "1 # comment",
        "(1",
        "[1)",
        "}",
        ":",
        "...",
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_literal(text)


@pytest.mark.parametrize("text", ["(" * 60_000, "[" * 60_000 + "]" * 60_000, "{'a':" * 12_000])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="cannot read the header"):
        parse_literal(text)
