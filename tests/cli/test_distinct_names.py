"""Long names are shortened, and no two tensors get one name."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorkeep
from tensorkeep.cli.reports import Comparison
from tensorkeep.cli.terminal import distinct_names

LAYERS = [f"model.layers.{n}.{part}.weight" for n in range(40) for part in ("self_attn.q_proj", "mlp.down_proj")]

PARTS = st.sampled_from([
    "model.",
    "layers.",
    "a" * 30,
    "b" * 15,
    "1",
    "12",
    ".weight",
    "重み",
    "…",
    "\n",
    "\\n",
    '"',
    "",
])
NAMES = st.lists(st.lists(PARTS, max_size=8).map("".join) | st.text(max_size=60), unique=True, max_size=30)


@given(names=NAMES, n_cells=st.integers(min_value=1, max_value=100))
def test_no_two_names_become_one(names: list[str], n_cells: int) -> None:
    for width in (n_cells, None):
        shown = distinct_names(names, width)

        assert list(shown) == names
        assert len(set(shown.values())) == len(names)
        assert all(text.isprintable() and text for text in shown.values())


@pytest.mark.parametrize(
    ("names", "n_cells", "shown"),
    [
        (["short", "other"], 20, ["short", "other"]),
        (["a" * 30], 11, ["aaaaa…aaaaa"]),
        (["a" * 30 + "x" + "b" * 30, "a" * 30 + "y" + "b" * 30], 11, ["…aaaaxbbbb…", "…aaaaybbbb…"]),
        (["", '""'], 20, ['""', '"\\"\\""']),
        (["\n", "\\n"], 20, ['"\\n"', '"\\\\n"']),
    ],
)
def test_what_is_shown(names: list[str], n_cells: int, shown: list[str]) -> None:
    assert list(distinct_names(names, n_cells).values()) == shown


def test_names_of_a_model_fit() -> None:
    shown = distinct_names(LAYERS, 24)

    assert max(map(len, shown.values())) <= 24
    assert {re.search(r"\d+", text)[0] for text in shown.values()} == {str(n) for n in range(40)}


@pytest.mark.parametrize("width", [40, 80, 100, 120])
def test_a_diff_names_each_tensor_once(tmp_path: Path, width: int) -> None:
    for file, value, names in (("a", 1.0, LAYERS[:60]), ("b", 2.0, LAYERS[20:])):
        tensorkeep.save({name: np.full((300, 4), value, np.float32) for name in names}, tmp_path / file)
    with tensorkeep.open(tmp_path / "a") as a, tensorkeep.open(tmp_path / "b") as b:
        compared = Comparison("a", "b", a, b, tensorkeep.diff(a, b), with_values=True)
        lines = ["".join(text for text, _ in line) for line in compared.lines(width)]

    rows = [line.split()[0] for line in lines if " F32 " in line]
    assert len(rows) == len(set(rows)) == len(LAYERS)
    assert width < 100 or max(map(len, lines[:-1])) <= width
