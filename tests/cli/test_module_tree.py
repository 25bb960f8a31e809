"""The tree of modules: splitting, joining, folding and sorting."""

from __future__ import annotations

from math import prod

import pytest

from tensorkeep.cli.reports.inspecting._module_tree import Branch, tree_of
from tensorkeep.cli.reports.inspecting._report import Order, natural_key
from tensorkeep.entries import TensorEntry


def entries_of(*names: str, **shapes: tuple[int, ...]) -> dict[str, TensorEntry]:
    """Lay float32 tensors out one after another; those without a shape have 4 elements."""
    entries = {}
    end = 0
    for name in names:
        shape = shapes.get(name.replace(".", "_"), (4,))
        entries[name] = TensorEntry("F32", shape, (end, end + 4 * prod(shape)))
        end += 4 * prod(shape)
    return entries


def outline(branches: tuple[Branch, ...]) -> list[object]:
    """Return label and copies of each branch, and those of what it holds behind it."""
    lines: list[object] = []
    for branch in branches:
        lines.append(f"{branch.label} x{branch.n_copies}" if branch.n_copies > 1 else branch.label)
        if branch.children:
            lines.append(outline(branch.children))
    return lines


FOLDED = [
    pytest.param(["a"], ["a"], id="one tensor"),
    pytest.param(["a.b.c"], ["a.b.c"], id="a chain is joined"),
    pytest.param(["m.a", "m.b"], ["m", ["a", "b"]], id="a module of two"),
    pytest.param(["m.n.a", "m.n.b"], ["m.n", ["a", "b"]], id="a module in a module"),
    pytest.param(["a", "a.b"], ["a", "a.b"], id="a tensor and a module of one name"),
    pytest.param(["", ".", "..a"], ["", "", ["", ".a"]], id="empty parts"),
    pytest.param(["l.0.w", "l.1.w", "l.2.w"], ["l.0..2 x3", ["w"]], id="equal layers"),
    pytest.param(["l.0.w", "l.1.w", "l.x"], ["l", ["0..1 x2", ["w"], "x"]], id="layers beside another tensor"),
    pytest.param(["l.0", "l.1", "l.2"], ["l.0..2 x3"], id="numbered tensors"),
    pytest.param(["l.0.w", "l.1.v"], ["l", ["0.w", "1.v"]], id="other names"),
    pytest.param(["l.0.w", "l.2.w", "l.3.w"], ["l.0, 2..3 x3", ["w"]], id="a gap"),
    pytest.param([f"l.{n}.w" for n in range(0, 20, 2)], ["l.0, 2, ..., 18 x10", ["w"]], id="many gaps"),
    pytest.param([f"l.{n}.w" for n in (10, 9, 8, 11)], ["l.8..11 x4", ["w"]], id="numbers, not texts"),
    pytest.param(["l.00.w", "l.01.w"], ["l", ["00.w", "01.w"]], id="padded numbers stay"),
    pytest.param(["l.٣.w", "l.٤.w"], ["l", ["٣.w", "٤.w"]], id="digits of other scripts stay"),
    pytest.param([f"l.{'9' * 5000}.w", "l.1.w"], ["l", ["1.w", f"{'9' * 5000}.w"]], id="numbers too long"),
    pytest.param(["w1.a", "w2.a"], ["w1.a", "w2.a"], id="names that end in numbers stay"),
    pytest.param(
        ["l.0.e.0.w", "l.0.e.1.w", "l.1.e.0.w", "l.1.e.1.w"],
        ["l.0..1 x2", ["e.0..1 x2", ["w"]]],
        id="layers in layers",
    ),
    pytest.param(
        ["l.0.a", "l.1.b", "l.2.a", "l.3.b"], ["l", ["0, 2 x2", ["a"], "1, 3 x2", ["b"]]], id="two kinds by turns"
    ),
]


@pytest.mark.parametrize(("names", "expected"), FOLDED)
def test_folding(names: list[str], expected: list[object]) -> None:
    assert outline(tree_of(entries_of(*names))) == expected


def test_layers_of_other_shape_dtype_or_size_are_not_folded() -> None:
    entries = entries_of("l.0.w", "l.1.w", "l.2.w", "l.3.w", "l.4.w", l_1_w=(2, 2))
    entries["l.2.w"] = TensorEntry("I32", (4,), entries["l.2.w"].data_offsets)
    entries["l.3.w"] = TensorEntry("Q4", (4,), (0, 16))
    entries["l.4.w"] = TensorEntry("Q4", (4,), (16, 34))

    assert outline(tree_of(entries)) == ["l", ["0.w", "1.w", "2.w", "3.w", "4.w"]]


def test_unfolded_on_request() -> None:
    assert outline(tree_of(entries_of("l.0.w", "l.1.w"), folds=False)) == ["l", ["0.w", "1.w"]]


def test_a_folded_branch_counts_one_copy() -> None:
    (layers,) = tree_of(entries_of(*(f"l.{n}.{part}" for n in range(3) for part in ("a", "b")), l_0_a=(4,)))

    assert (layers.n_copies, layers.n_tensors, layers.nbytes, layers.start) == (3, 2, 32, 0)
    assert [child.entry for child in layers.children] == [
        TensorEntry("F32", (4,), (0, 16)),
        TensorEntry("F32", (4,), (16, 32)),
    ]


def test_nothing_is_lost_or_counted_twice(minilm: str) -> None:
    import tensorkeep

    with tensorkeep.open(minilm) as file:
        for folds in (True, False):
            branches = tree_of(file.entries, folds=folds)
            assert sum(branch.n_copies * branch.nbytes for branch in branches) == file.nbytes
            assert _n_leaves(branches) == len(file) == 104


def _n_leaves(branches: tuple[Branch, ...]) -> int:
    return sum(branch.n_copies * (_n_leaves(branch.children) if branch.entry is None else 1) for branch in branches)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (Order.NAME, ["m", ["a", "b"], "n.0..1 x2", ["w"], "z"]),
        (Order.SIZE, ["n.0..1 x2", ["w"], "m", ["b", "a"], "z"]),
        (Order.OFFSET, ["z", "m", ["b", "a"], "n.0..1 x2", ["w"]]),
    ],
)
def test_sorting(order: Order, expected: list[object]) -> None:
    entries = entries_of("z", "m.b", "m.a", "n.0.w", "n.1.w", z=(1,), m_b=(20,), m_a=(19,), n_0_w=(20,), n_1_w=(20,))

    assert outline(tree_of(entries, order=order)) == expected


def test_a_name_of_a_million_dots_is_not_a_million_modules() -> None:
    name = "a." * 1_000_000 + "w"
    other = "a." * 999_999 + "b.w"

    (branch,) = tree_of(entries_of(name, other))

    assert [branch.label + "." + child.label for child in branch.children] == [name, other]


def test_natural_order() -> None:
    names = ["layer.10.w", "layer.9.w", "layer.9.b", "10", "9", "a", "", "layer.x", "1" * 5000]

    assert sorted(names, key=natural_key) == [
        "",
        "9",
        "10",
        "1" * 5000,
        "a",
        "layer.9.b",
        "layer.9.w",
        "layer.10.w",
        "layer.x",
    ]
