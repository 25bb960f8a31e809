"""Patterns of a policy: what they match, and that no pattern takes long."""

from __future__ import annotations

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.trust._patterns import is_matched

WILD = {"**": ".*", "*": "[^/]*", "?": "[^/]"}


@given(
    pattern=st.lists(st.sampled_from(["**", "*", "?", "/", "a", "b", "ab/", "\n"]), max_size=8).map("".join),
    place=st.text("ab/\n", max_size=12),
)
def test_they_match_what_regular_expressions_match(pattern: str, place: str) -> None:
    parts = re.split(r"(\*\*|\*|\?)", pattern.rstrip("/"))
    expression = "".join(WILD.get(part) or re.escape(part) for part in parts)

    is_expected = pattern == "**" or re.fullmatch(expression, place, re.DOTALL) is not None
    assert is_matched(place, pattern) == is_expected


def test_many_wildcards_take_no_time() -> None:
    begin = time.process_time()
    for wild in ("**", "*", "?**", "*?"):
        assert not is_matched("/" + "a" * 4000, f"/{wild}a" * 30 + "b")
        assert not is_matched("/" + "a" * 4000, f"{wild}a" * 30 + "b")
    assert time.process_time() - begin < 2
