"""Any tree comes back exactly: thousands of generated ones, and nodes that say what the specification says."""

from __future__ import annotations

import collections

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from tensorkeep.state import encode_tree, part_libraries, renamed, tensor_names
from tests.support.soak import rounds
from tests.support.state.codec import decode, encode, round_trip
from tests.support.state.exactly import assert_exactly
from tests.support.state.states import CLASSES, scalars, states

MANY = settings(max_examples=rounds(300, 20_000), deadline=None, suppress_health_check=list(HealthCheck))


@MANY
@given(states())
def test_trees_come_back_exactly(value) -> None:
    assert_exactly(round_trip(value, classes=CLASSES), value)


@MANY
@given(states())
def test_what_came_back_without_classes_is_written_as_it_was(value) -> None:
    first = encode(value)

    second = encode(decode(first.tree, first.tensors))

    assert msgspec.json.encode(second.tree) == msgspec.json.encode(first.tree)
    assert list(second.tensors) == list(first.tensors)


@MANY
@given(states(max_leaves=8))
def test_names_are_those_of_the_tensors(value) -> None:
    encoded = encode(value)
    names = [name for name, _, _ in tensor_names(encoded.tree)]
    mapping = {name: f"new {name}" for name in names[::2]}

    moved = renamed(encoded.tree, mapping)

    assert names == list(encoded.tensors)
    assert [name for name, _, _ in tensor_names(moved)] == [mapping.get(name, name) for name in names]
    assert msgspec.json.encode(renamed(encoded.tree, {})) == msgspec.json.encode(encoded.tree)
    tensors = {mapping.get(name, name): tensor for name, tensor in encoded.tensors.items()}
    loaded, kept = list(tensors.values()), list(encoded.tensors.values())
    assert all(one is other for one, other in zip(loaded, kept, strict=True))
    decode(moved, tensors, classes=CLASSES)


def test_a_tensor_gets_the_key_that_makes_its_new_name() -> None:
    weight, bias, step = np.zeros(2), np.ones(2), np.zeros(())
    encoded = encode({"model": {"old.weight": weight, "bias": bias}, "steps": [step], "n": 1})

    moved = renamed(encoded.tree, {"model.old.weight": "model.weight", "model.bias": "bias", "steps.0": "model.step"})

    tensors = {"model.weight": weight, "bias": bias, "model.step": step}
    assert [name for name, _, _ in tensor_names(moved)] == list(tensors)
    assert_exactly(decode(moved, tensors), {"model": {"weight": weight, "bias": bias}, "steps": [step], "n": 1})


def test_keys_stay_where_new_ones_would_clash() -> None:
    first, second = np.zeros(2), np.ones(2)
    encoded = encode({"a": first, "b": second, "c": 0})
    swapped = {"a": "b", "b": "a"}

    assert_exactly(
        decode(renamed(encoded.tree, swapped), {"b": first, "a": second}), {"b": first, "a": second, "c": 0}
    )
    kept = decode(renamed(encoded.tree, {"a": "c"}), {"c": first, "b": second})
    assert_exactly(kept, {"a": first, "b": second, "c": 0})


def test_parts_of_values_have_a_library() -> None:
    tree = [
        "list",
        ["composed", "torch", "sparse_coo", ["dict"], ["dict", "indices", {}, "inner", [*COMPOSED_OF_NUMPY]]],
        ["composed", "numpy", "objects", ["dict"], ["dict", "items", ["list", {}]]],
        ["bytes", {"name": "long"}],
        {},
    ]

    assert part_libraries(tree) == {"0.indices": "torch", "0.inner.data": "numpy", "long": "numpy"}


COMPOSED_OF_NUMPY = ["composed", "numpy", "array", ["dict"], ["dict", "data", {}]]


@MANY
@given(scalars)
def test_scalars_come_back_exactly(value) -> None:
    assert_exactly(round_trip(value, classes=CLASSES), value)
    assert_exactly(round_trip([value, {"a": (value,)}], classes=CLASSES), [value, {"a": (value,)}])


SHARED = [1]
NAMES = {
    "nested": ({"a": {"b": np.zeros(1)}}, ["a.b"]),
    "places": ([np.zeros(1), (np.zeros(1),)], ["0", "1.0"]),
    "collision": ({"a": {"b": np.zeros(1)}, "a.b": np.ones(1), ("a", "b"): np.ones(1)}, ["a.b", "a.b#2", "a,b"]),
    "taken suffix": ({"x#2": np.zeros(1), "x": np.zeros(1), "y": {"": 0}}, ["x#2", "x"]),
    "suffix is taken": (
        {"a.b#2": np.zeros(1), "a.b": np.zeros(1), "a": {"b": np.zeros(1)}},
        ["a.b#2", "a.b", "a.b#3"],
    ),
    "numbers": (
        {1: np.zeros(1), "1": np.zeros(1), None: np.zeros(1), True + 1.5: np.zeros(1)},
        ["1", "1#2", "null", "2.5"],
    ),
    "surrogates": ({"\ud800": np.zeros(1), b"ab": np.zeros(1)}, ["7aCA", "YWI="]),
    "header's own": ({"__metadata__": np.zeros(1)}, ["__metadata__#2"]),
    "root": (np.zeros(1), ["tensor"]),
    "empty key": ({"": np.zeros(1), "a": {"": np.zeros(1)}}, ["", "a."]),
    "long bytes": ({"state": b"x" * 4097}, ["state"]),
    "attributes": ({"m": collections.Counter({"k": np.zeros(1)})}, ["m.k"]),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_say_where_a_tensor_stands(name: str) -> None:
    value, expected = NAMES[name]

    encoded = encode(value)

    assert list(encoded.tensors) == expected
    assert [each[0] for each in tensor_names(encoded.tree)] == expected
    assert_exactly(decode(encoded.tree, encoded.tensors), value)


NODES = {
    "shared": ({"a": SHARED, "b": SHARED}, ["dict", "a", ["list", 1], "b", ["same", 1]]),
    "tuple of scalars": ([(1, 2.0)] * 2, ["list", ["tuple", 1, 2.0], ["tuple", 1, 2.0]]),
    "set": ({3, 20, "b"}, ["set", "b", 20, 3]),
    "numbers": ([2**53 - 1, -(2**53), -0.0], ["list", 2**53 - 1, ["int", "-0x20000000000000"], -0.0]),
    "tensor": ({"w": np.zeros(1)}, ["dict", "w", {}]),
    "key": ({(1, "a"): 0}, ["dict", ["tuple", 1, "a"], 0]),
    "same after keys": ([{(1,): SHARED}, SHARED], ["list", ["dict", ["tuple", 1], ["list", 1]], ["same", 2]]),
    "composed": (
        [torch.float16],
        ["list", ["composed", "torch", "dtype", ["dict", "name", "torch.float16"], ["dict"]]],
    ),
    "attributes": (collections.OrderedDict(a=1), ["OrderedDict", None, "a", 1]),
}


@pytest.mark.parametrize("name", NODES)
def test_nodes_are_as_specified(name: str) -> None:
    value, node = NODES[name]

    assert msgspec.json.encode(encode(value).tree) == msgspec.json.encode(node)


def test_marks_stand_with_the_tensor() -> None:
    encoded = encode_tree(
        {"a": {"b": np.zeros(1)}, "a.b": np.ones(1)}, leaf=lambda _: {"library": "numpy"}, compose=lambda _: None
    )

    assert encoded.tree[4] == {"name": "a.b#2", "library": "numpy"}
    assert [members for _, _, members in tensor_names(encoded.tree)] == [{"library": "numpy"}] * 2


def test_equal_sets_give_equal_nodes() -> None:
    texts = [f"text {number}" for number in range(100)]
    upwards, downwards = dict.fromkeys(texts).keys() | set(), dict.fromkeys(texts[::-1]).keys() | set()

    assert encode(upwards).tree == encode(downwards).tree == ["set", *sorted(texts)]
