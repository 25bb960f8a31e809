"""Names of Keras's weights, and the index of its shards."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import pytest

from tensorkeep import limits
from tensorkeep.errors import IndexFileError, IntegrityError, LimitError, TensorkeepError
from tensorkeep.formats.keras import parse_shard_index
from tensorkeep.formats.keras._names import in_order, may_be_legacy, names_of_variables, names_of_weights
from tests.support.soak import rounds


def test_layers_are_called_as_keras_shows_them() -> None:
    layers = {
        "layers/dense": "first dense",
        "layers/sequential": "tower",
        "layers/sequential/layers/dense": "dense",
        "layers/lstm/cell": "lstm_cell",
        "optimizer": "adam",
    }
    paths = [
        "layers/dense/vars/0",
        "layers/sequential/layers/dense/vars/1",
        "layers/lstm/cell/vars/0",
        "optimizer/vars/3",
        "vars/0",
    ]

    assert list(names_of_variables(paths, layers).values()) == [
        "layers/first dense/vars/0",
        "layers/tower/layers/dense/vars/1",
        "layers/lstm/lstm_cell/vars/0",
        "optimizer/vars/3",
        "vars/0",
    ]


@pytest.mark.parametrize(
    "layers",
    [
        {"layers/a": "same", "layers/b": "same"},
        {"layers/a": "b"},
        {"layers/a": "x/y", "layers/b": ""},
    ],
)
def test_names_that_would_not_be_distinct_are_paths(layers: dict[str, str]) -> None:
    paths = ["layers/a/vars/0", "layers/b/vars/0"]

    assert names_of_variables(paths, layers) == dict(zip(paths, paths, strict=True))


def test_names_that_are_swapped_stay_distinct() -> None:
    paths = ["layers/dense/vars/0", "layers/dense_1/vars/0"]

    assert list(names_of_variables(paths, {"layers/dense": "dense_1", "layers/dense_1": "dense"}).values()) == [
        "layers/dense_1/vars/0",
        "layers/dense/vars/0",
    ]


def test_variables_are_in_the_order_of_their_numbers() -> None:
    paths = ["a", "o/vars/0", "o/vars/1", "o/vars/10", "o/vars/2", "o/x", "z/vars/0"]

    assert in_order(paths) == ["a", "o/vars/0", "o/vars/1", "o/vars/2", "o/vars/10", "o/x", "z/vars/0"]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (
            ["model_weights/head/head/kernel:0", "model_weights/tower/dense/bias:0", "optimizer_weights/adam/iter:0"],
            ["head/kernel:0", "dense/bias:0", "optimizer/adam/iter:0"],
        ),
        (["head/head/kernel:0", "bert/tf_bert/bert/w:0"], ["head/kernel:0", "tf_bert/bert/w:0"]),
        (["a/dense/kernel:0", "b/dense/kernel:0"], ["a/dense/kernel:0", "b/dense/kernel:0"]),
        (["a/kernel", "b/kernel"], ["a/kernel", "b/kernel"]),
        (
            ["model_weights/a/dense/kernel", "model_weights/b/dense/kernel"],
            ["a/dense/kernel", "b/dense/kernel"],
        ),
        (
            ["model_weights/optimizer/optimizer/k", "optimizer_weights/k"],
            ["optimizer/optimizer/k", "optimizer/k"],
        ),
    ],
)
def test_weights_of_keras_2_have_their_own_names(paths: list[str], names: list[str]) -> None:
    assert may_be_legacy(paths)
    assert list(names_of_weights(paths).values()) == names


def test_no_two_weights_get_one_name() -> None:
    chance = random.Random(3)
    parts = ("a", "b", "model_weights", "optimizer_weights", "optimizer", "vars", "0")
    for _ in range(rounds(2_000, 100_000)):
        paths = {"/".join(chance.choices(parts, k=chance.randint(1, 4))) for _ in range(6)}
        layers = {"/".join(chance.choices(parts, k=chance.randint(1, 3))): chance.choice(parts) for _ in range(6)}
        for names in (names_of_weights(paths), names_of_variables(paths, layers)):
            assert names.keys() == paths
            assert len(set(names.values())) == len(paths)


INDEX: dict[str, Any] = {
    "metadata": {"total_size": 892.0},
    "weight_map": {
        "/layers/lstm/cell/vars": ["a_00000.weights.h5", "a_00001.weights.h5"],
        "/vars": ["a_00001.weights.h5"],
    },
}
PATHS = {
    "a_00000.weights.h5": ["layers/lstm/cell/vars/0"],
    "a_00001.weights.h5": ["layers/lstm/cell/vars/1", "vars/0"],
}


def test_an_index_lists_files() -> None:
    index = parse_shard_index(json.dumps(INDEX).encode())

    assert index.files == ("a_00000.weights.h5", "a_00001.weights.h5")
    index.check(PATHS)


@pytest.mark.parametrize(
    "paths",
    [
        {"a_00000.weights.h5": [], "a_00001.weights.h5": PATHS["a_00001.weights.h5"]},
        {"a_00000.weights.h5": ["layers/lstm/cell/vars/1"], "a_00001.weights.h5": PATHS["a_00001.weights.h5"]},
        PATHS | {"a_00001.weights.h5": ["layers/lstm/cell/vars/1"]},
        PATHS | {"a_00001.weights.h5": [*PATHS["a_00001.weights.h5"], "layers/dense/vars/0"]},
        PATHS | {"a_00000.weights.h5": ["layers/lstm/cell/vars/0", "vars/1"]},
    ],
)
def test_shards_that_disagree_with_the_index_are_refused(paths: Any) -> None:
    with pytest.raises(IntegrityError, match="do not agree"):
        parse_shard_index(json.dumps(INDEX).encode()).check(paths)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b"{}",
        b'{"weight_map": {"/vars": "a.h5"}}',
        b'{"weight_map": {"/vars": [1]}}',
        b'{"weight_map": {"/vars": []}}',
        b'{"weight_map": {"/vars": ["a.h5", "a.h5"]}}',
        b'{"weight_map": {"/vars": ["../a.h5"]}}',
        b'{"weight_map": {"/vars": ["/etc/passwd"]}}',
        b'{"weight_map": {"/vars": ["C:a.h5"]}}',
        b'{"weight_map": {"/vars": ["http://a/b.h5"]}}',
        b'{"weight_map": {"/vars": ["a.h5"], "vars": ["b.h5"]}}',
        b'{"weight_map": {"/vars": ["a.h5"], "/vars": ["b.h5"]}}',
        b'{"weight_map": {"/layers/dense": ["a.h5"]}}',
    ],
)
def test_other_indexes_are_refused(text: bytes) -> None:
    with pytest.raises(IndexFileError):
        parse_shard_index(text)


def test_a_long_index_is_refused() -> None:
    with pytest.raises(LimitError):
        parse_shard_index(b" " * (limits.MAX_INDEX_NBYTES + 1))


def test_changed_indexes_give_an_index_or_our_error() -> None:
    chance = random.Random(5)
    text = json.dumps(INDEX).encode()
    for _ in range(rounds(2_000, 100_000)):
        changed = bytearray(text)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        with suppress(TensorkeepError):
            parse_shard_index(bytes(changed))
