"""What sets two states apart besides the elements of tensors."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors.numpy
import torch
from flax.serialization import msgpack_serialize

import tensorkeep
from tensorkeep.checkpoint import DataDiff
from tensorkeep.checkpoint.diffing._states import data_diffs, tie_diffs
from tensorkeep.errors import TensorNotFoundError
from tensorkeep.formats.safetensors import Alias


class Color(Enum):
    RED = 1
    BLUE = 2


class Point(NamedTuple):
    x: int
    y: int


def data_of(tmp_path: Path, a: Any, b: Any, **options: Any) -> list[tuple[str, str | None, str | None]]:
    tensorkeep.save(a, tmp_path / "a")
    tensorkeep.save(b, tmp_path / "b")
    assert tensorkeep.diff(tmp_path / "a", tmp_path / "a", **options).is_equal
    found = tensorkeep.diff(tmp_path / "a", tmp_path / "b", **options)
    assert found.is_equal is not bool(found.data or found.ties or found.changed or found.only_in_a or found.only_in_b)
    return [(each.path, each.a, each.b) for each in found.data]


@pytest.mark.parametrize(
    ("a", "b", "text_a", "text_b"),
    [
        (1, 1.0, "1", "1.0"),
        (1, True, "1", "True"),
        (1, "1", "1", "'1'"),
        (0.0, -0.0, "0.0", "-0.0"),
        (float("nan"), float("inf"), "nan", "inf"),
        (2**60, 2**60 + 1, str(2**60), str(2**60 + 1)),
        (None, False, "None", "False"),
        (b"a", bytearray(b"a"), "b'a'", "bytearray(b'a')"),
        ("a" * 500, "a" * 499 + "b", "…aaaaaaaaaaaaaaa'", None),
        ((1, 2), [1, 2], "(1, 2)", "[1, 2]"),
        ({1, 2}, {1, 3}, "{1, 2}", "{1, 3}"),
        (frozenset(), set(), "frozenset({})", "set()"),
        (deque([1], 3), deque([1], 4), '["deque",3,1]', '["deque",4,1]'),
        (Color.RED, Color.BLUE, f"{__name__}:Color.RED", f"{__name__}:Color.BLUE"),
        (Decimal("1.0"), Decimal("1.00"), "Decimal('1.0')", "Decimal('1.00')"),
        (np.float32(0.1), np.float32(0.2), "np.float32(0.1)", "np.float32(0.2)"),
        (np.float32(0.5), np.float64(0.5), "np.float32(0.5)", "np.float64(0.5)"),
        (torch.float16, torch.bfloat16, "torch.dtype('torch.float16')", "torch.dtype('torch.bfloat16')"),
        (range(3), range(0, 3, 2), "range(0, 3)", "range(0, 3, 2)"),
        (slice(1, 2), slice(1, 3), "slice(1, 2, None)", "slice(1, 3, None)"),
        ({}, [], "{}", "[]"),
        (10**400, 10**401, None, None),
    ],
)
def test_values(tmp_path: Path, a: Any, b: Any, text_a: str | None, text_b: str | None) -> None:
    ((path, found_a, found_b),) = data_of(tmp_path, {"x": {"y": a}}, {"x": {"y": b}})

    assert path == "x.y"
    assert found_a is not None
    assert found_b is not None
    assert max(len(found_a), len(found_b)) <= 60
    assert found_a != found_b
    assert text_a in (None, found_a) or (len(str(a)) > 60 and found_a.endswith("'"))
    assert text_b in (None, found_b)


@pytest.mark.parametrize(
    ("a", "b", "kinds"),
    [
        ({"k": 1}, OrderedDict(k=1), ("dict", "OrderedDict")),
        ({"k": 1}, Counter(k=1), ("dict", "Counter")),
        ({"k": 1}, defaultdict(None, k=1), ("dict", "defaultdict")),
        ([{"k": 1}], ({"k": 1},), ("list", "tuple")),
        (deque([{}, {"k": 1}], 3), deque([{}, {"k": 1}]), ("deque of up to 3", "deque")),
        (Point(1, 2), {"x": 1, "y": 2}, (f"namedtuple '{__name__}:Point'", "dict")),
    ],
)
def test_types_of_containers(tmp_path: Path, a: Any, b: Any, kinds: tuple[str, str]) -> None:
    assert data_of(tmp_path, {"x": a}, {"x": b}) == [("x", *kinds)]


def test_what_only_one_has_is_told_in_one_piece_without_its_tensors(tmp_path: Path) -> None:
    ones = np.ones(2)
    a = {"epoch": 1, "optim": {"state": {0: {"step": 3, "avg": ones}}, "groups": [{"lr": 0.1, "ids": [0]}]}}

    assert data_of(tmp_path, a, {"epoch": 1}) == [
        ("optim.state.0.step", "3", None),
        ("optim.groups", "[{'lr': 0.1, 'ids': [0]}]", None),
    ]
    assert data_of(tmp_path, {"x": {"k": 1}}, {"x": {1: 1}}) == [("x.k", "1", None), ("x.1", None, "1")]
    assert data_of(tmp_path, [[{}], 1], [[{}], 1, {"k": 2}]) == [("2", None, "{'k': 2}")]


def test_tensors_and_what_is_none(tmp_path: Path) -> None:
    ones = torch.ones(2)

    assert data_of(tmp_path, {"x": ones}, {"x": 1}) == [("x", "tensor", "1")]
    assert data_of(tmp_path, {"x": ones}, {"x": ones.to_sparse()}) == [
        ("x", "tensor", "torch.sparse_coo(shape=(2,), is_coalesced=True)")
    ]
    assert data_of(tmp_path, {"x": ones}, {"x": torch.nn.Parameter(ones)}) == [
        ("x", "tensor", "Parameter that requires grad")
    ]
    assert data_of(tmp_path, {"x": ones}, {"x": ones.numpy()}) == []
    assert data_of(tmp_path, {"x": bytes(5000)}, {"x": b"abc"}) == [("x", "bytes in a tensor", "b'abc'")]


def test_containers_in_two_places_are_compared_by_where_they_stand(tmp_path: Path) -> None:
    shared: dict[str, int] = {"k": 1}

    assert data_of(tmp_path, {"a": shared, "b": shared}, {"a": shared, "b": {"k": 1}}) == [
        ("b", "same as a", "{'k': 1}")
    ]
    assert data_of(tmp_path, {"a": shared, "b": shared}, {"new": {}, "a": shared, "b": shared}) == [
        ("new", None, "{}")
    ]


def test_orders_of_dicts_do_not_matter(tmp_path: Path) -> None:
    assert data_of(tmp_path, {"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}) == []


def test_a_file_of_tensors_has_no_data(tmp_path: Path) -> None:
    tensors = {"a": np.ones(2), "b": np.zeros(3)}
    tensorkeep.save(tensors, tmp_path / "a")
    tensorkeep.save({}, tmp_path / "empty")
    safetensors.numpy.save_file(tensors, tmp_path / "b")
    safetensors.numpy.save_file({}, tmp_path / "nothing")

    assert tensorkeep.diff(tmp_path / "a", tmp_path / "b").is_equal
    assert tensorkeep.diff(tmp_path / "empty", tmp_path / "nothing").is_equal
    tensorkeep.save({**tensors, "epoch": 3}, tmp_path / "a")
    assert tensorkeep.diff(tmp_path / "b", tmp_path / "a").data == (DataDiff("epoch", None, "3"),)
    assert tensorkeep.diff(tmp_path / "b", tmp_path / "a", values=False).is_equal


def test_states_of_other_formats(tmp_path: Path) -> None:
    state = {"w": torch.ones(3), "epoch": 3, "none": None, "empty": {}, "text": "t", "t": (1, [2.5])}
    torch.save(state, tmp_path / "a.pt")
    torch.save({**state, "epoch": 4}, tmp_path / "b.pt")
    state["w"] = np.ones(3, np.float32)
    (tmp_path / "a.msgpack").write_bytes(msgpack_serialize({**state, "t": {"x": 1}}))
    for name in ("a.pt", "a.msgpack"):
        tensorkeep.convert(tmp_path / name, tmp_path / f"{name}.safetensors")
        assert tensorkeep.diff(tmp_path / name, tmp_path / f"{name}.safetensors").is_equal

    assert tensorkeep.diff(tmp_path / "a.pt", tmp_path / "b.pt").data == (DataDiff("epoch", "3", "4"),)
    assert tensorkeep.diff(tmp_path / "a.pt", tmp_path / "a.pt.safetensors", only="w").is_equal
    assert tensorkeep.diff(tmp_path / "a.pt", tmp_path / "b.pt", values=False).is_equal


def test_a_state_dict_has_no_data(tmp_path: Path) -> None:
    module = torch.nn.Linear(2, 2)
    weights = module.state_dict()
    torch.save(weights, tmp_path / "a.pt")
    torch.save({"n": 1, **dict(module.named_parameters())}, tmp_path / "b.pt")
    assert tensorkeep.diff(tmp_path / "a.pt", tmp_path / "b.pt").data == (DataDiff("n", None, "1"),)
    safetensors.numpy.save_file({name: w.numpy() for name, w in weights.items()}, tmp_path / "a.safetensors")
    assert tensorkeep.diff(tmp_path / "a.pt", tmp_path / "a.safetensors").is_equal


def test_only_some(tmp_path: Path) -> None:
    a = {"model": {"w": np.ones(2), "n": 1}, "optim": {"lr": 0.1, "m": np.ones(3)}}
    b = {"model": {"w": np.zeros(2), "n": 2}, "optim": {"lr": 0.2, "m": np.ones(3)}}
    tensorkeep.save(a, tmp_path / "a")
    tensorkeep.save(b, tmp_path / "b")

    found = tensorkeep.diff(tmp_path / "a", tmp_path / "b", only="optim.*")
    assert (found.changed, found.n_equal, found.data) == ((), 1, (DataDiff("optim.lr", "0.1", "0.2"),))
    found = tensorkeep.diff(tmp_path / "a", tmp_path / "b", only=["*.n", lambda name: name == "model.w"])
    assert ([each.name for each in found.changed], found.data) == (["model.w"], (DataDiff("model.n", "1", "2"),))
    assert tensorkeep.diff(tmp_path / "a", tmp_path / "b", only="optim.m").is_equal
    with pytest.raises(TensorNotFoundError, match="no tensor is chosen"):
        tensorkeep.diff(tmp_path / "a", tmp_path / "b", only="nothing")


def test_ties(tmp_path: Path) -> None:
    weight = torch.arange(6.0)
    a = {"x": weight, "y": weight, "z": weight[1:3]}
    tensorkeep.save(a, tmp_path / "a")
    tensorkeep.save({"x": weight, "y": weight.clone(), "z": weight[1:3]}, tmp_path / "lost")
    tensorkeep.save({"x": weight, "y": weight, "z": weight[1:3].clone()}, tmp_path / "copied")
    tensorkeep.save({"y": weight, "x": weight, "z": weight[1:3]}, tmp_path / "swapped")

    def ties(other: str) -> tuple[DataDiff, ...]:
        found = tensorkeep.diff(tmp_path / "a", tmp_path / other)
        assert (found.changed, found.data) == ((), ())
        return found.ties

    assert ties("lost") == (DataDiff("y", "= x", "memory of its own"),)
    assert ties("copied") == (DataDiff("z", "view of x from byte 4", "memory of its own"),)
    assert not [each for each in ties("swapped") if each.path != "z"]
    assert tensorkeep.diff(tmp_path / "a", tmp_path / "a").n_unread == 3


def test_ties_of_large_groups_take_linear_time() -> None:
    names = ["x", *map(str, range(100_000))]
    aliases = {name: Alias("x") for name in names[1:]}
    others = {name: Alias("0") for name in [*names[2:], "x"]}

    start = time.perf_counter()
    assert tie_diffs(aliases, others, names) == []
    assert len(tie_diffs(aliases, {}, names)) == 100_000
    assert time.perf_counter() - start < 5


def test_trees_as_deep_as_they_can_be() -> None:
    a: Any = ["dict"]
    b: Any = ["dict", "k", 1]
    for _ in range(199):
        a, b = ["dict", "x", a], ["dict", "x", b]

    (found,) = data_diffs(a, b)
    assert (found.path, found.a, found.b) == ("x." * 199 + "k", None, "1")
