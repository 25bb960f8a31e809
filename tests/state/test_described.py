"""Nodes as people read them, and the walks through them."""

from __future__ import annotations

from typing import Any

import pytest

from tensorkeep.errors import FormatError
from tensorkeep.state import container_paths, described, parts_of, plain_values, read_tree


def numpy_scalar(data: object) -> list[Any]:
    return ["composed", "numpy", "scalar", ["dict", "dtype", "<f4", "data", data], ["dict"]]


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (None, "None"),
        (-0.0, "-0.0"),
        ("a\x1b", r"'a\x1b'"),
        (["tuple", 1], "(1,)"),
        (["dict", "k", ["list"], 1, {}], "{'k': [], 1: tensor}"),
        (["dataclass", "m:C", "x", 1], "m:C(x=1)"),
        (["enum", "m:E", "A", 1], "m:E.A"),
        (["enum", "m:E", None, 3], "m:E(3)"),
        (["datetime", "2026-01-02T03:04:05", 0, None], "2026-01-02 03:04:05"),
        (["timezone", ["timedelta", 0, 3600, 0], None], "timezone('UTC+01:00')"),
        (["Path", "a/b"], "Path('a/b')"),
        (["int", "-0x" + "f" * 300], "-0x" + "f" * 300),
        (["Fraction", 1, 3], "Fraction(1, 3)"),
        (["complex", 0.0, 1.0], "1j"),
        (numpy_scalar(["bytes", "zczMPQ=="]), "np.float32(0.1)"),
        (numpy_scalar(7), "numpy.scalar(dtype='<f4', data=7)"),
        (["composed", "torch", "device", ["dict", "name", "cpu"], ["dict"]], "torch.device('cpu')"),
    ],
)
def test_one_line(node: Any, text: str) -> None:
    assert described(node) == text


def test_what_is_cut() -> None:
    assert described(["list", *range(1000)], max_chars=10) == "[0, 1, 2, … (1,000 items)"
    assert described("x" * 5000, max_chars=4) == "'xxx… (5,000 characters)"
    assert described(["list", 1], max_chars=3) == "[1]"


def test_a_cut_text_does_not_cost_the_whole() -> None:
    nested: Any = ["list", 1]
    for _ in range(100):
        nested = ["list", nested, *range(1000)]

    assert len(described(nested, max_chars=20)) < 50


def test_values_by_name() -> None:
    tree: Any = ["dict", "a", ["dict", 1, 2, "t", {}], "b", ["list", ["dict"], 3], "c", ["tuple", 1, ["tuple", 2]]]

    values = {path: described(node) for path, node in plain_values(tree)}
    assert values == {"a.1": "2", "b.0": "{}", "b.1": "3", "c": "(1, (2,))"}
    assert parts_of(["list", 1, 2]) is None
    assert container_paths(tree) == ["", "a", "b", "b.0", "c", "c.1"]
    assert described(["same", 3], container_paths(tree)) == "same as b.0"


@pytest.mark.parametrize(
    "text", [b"[", b"[]", b'["dict","a"]', b'["dict","x",{}]', b'["bytes",{"name":"x"}]', b"[" * 9999]
)
def test_what_is_no_tree_is_refused(text: bytes) -> None:
    with pytest.raises(FormatError):
        read_tree(text, lambda _: False)
