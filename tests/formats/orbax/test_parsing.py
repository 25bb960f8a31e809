"""The JSON files of orbax: trees that cannot be are refused, whatever the text says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.errors import FormatError, LimitError, TensorkeepError
from tensorkeep.formats.orbax import Leaf, parse_step, parse_tree, parse_value
from tensorkeep.formats.zarr import parse_zarr


def metadata(*paths: list[tuple[str, int]], value_type: str = "jax.Array", **others: Any) -> bytes:
    entries = {
        str(number): {
            "key_metadata": [{"key": key, "key_type": kind} for key, kind in path],
            "value_metadata": {"value_type": value_type, "skip_deserialize": False},
        }
        for number, path in enumerate(paths)
    }
    return json.dumps({"tree_metadata": entries, **others}).encode()


def test_keys_say_whether_a_container_is_a_dict_or_a_list() -> None:
    tree = parse_tree(metadata([("a", 2), ("1", 1)], [("a", 2), ("0", 1)], [("b", 2)])).tree

    assert tree == {"a": [Leaf("a.0"), Leaf("a.1")], "b": Leaf("b")}


@pytest.mark.parametrize(
    "paths",
    [
        ([("a", 2)], [("a", 2)]),  # twice
        ([("a", 2)], [("a", 2), ("b", 2)]),  # a value and a container
        ([("a", 2), ("b", 2)], [("a", 2)]),
        ([("a", 2), ("b", 2)], [("a", 2), ("0", 1)]),  # a dict and a list
        ([("a", 2), ("1", 1)],),  # a gap
        ([("a", 2), ("x", 1)],),  # no number
        ([("a", 2), ("٣", 1)],),
        ([("a", 2), ("b", 2)], [("a.b", 2)]),  # two leaves of one name
        ([], [("a", 2)]),
    ],
)
def test_trees_that_cannot_be_are_refused(paths: Any) -> None:
    with pytest.raises(FormatError):
        parse_tree(metadata(*paths))


def test_depth_is_bounded() -> None:
    with pytest.raises(LimitError):
        parse_tree(metadata([("a", 2)] * 1000))
    nested = '{"a":' * 300 + "1" + "}" * 300
    for text in (nested, '{"a":' * 100_000, "[" * 100_000):
        with pytest.raises((LimitError, FormatError)):
            parse_value(text.encode())
        with pytest.raises((LimitError, FormatError)):
            parse_tree(metadata(value_metadata_tree=text))
    with pytest.raises((LimitError, FormatError)):
        parse_step(f'{{"metrics": {nested}}}'.encode())


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"dtype": "<f4", "shape": [3, 4], "chunks": [3, 2]}, ("F32", "<f4", (3, 4), (3, 2))),
        ({"dtype": "|b1", "shape": [], "chunks": []}, ("BOOL", "|b1", (), ())),
        ({"dtype": "bfloat16", "shape": [0], "chunks": [1]}, ("BF16", "bfloat16", (0,), (1,))),
        ({"dtype": "int4", "shape": [2], "chunks": [2]}, (None, "int4", (2,), (2,))),
    ],
)
def test_arrays_are_described(members: dict[str, Any], expected: Any) -> None:
    found = parse_zarr(json.dumps({"zarr_format": 2, **members}).encode(), is_zarr3=False)

    assert (found.dtype, found.what, found.shape, found.chunk) == expected


@pytest.mark.parametrize(
    "members",
    [
        {"zarr_format": 3},
        {"shape": [-1]},
        {"shape": [2**63, 2]},
        {"shape": [1] * 65, "chunks": [1] * 65},
        {"chunks": [0]},
        {"chunks": [1, 1]},
        {"shape": [1.5]},
        {"shape": ["1"]},
    ],
)
def test_impossible_arrays_are_refused(members: dict[str, Any]) -> None:
    whole = {"zarr_format": 2, "dtype": "<f4", "shape": [3], "chunks": [3], **members}
    with pytest.raises(FormatError):
        parse_zarr(json.dumps(whole).encode(), is_zarr3=False)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_any_json_is_a_value_or_an_error_of_ours(value: Any) -> None:
    text = json.dumps(value)
    for parse in (
        parse_tree,
        parse_step,
        parse_value,
        lambda data: parse_zarr(data, is_zarr3=True),
        lambda _: parse_tree(metadata(value_metadata_tree=text)),
    ):
        try:
            parse(text.encode())
        except TensorkeepError:
            continue


THIRD = {
    "zarr_format": 3,
    "shape": [4, 6],
    "data_type": "float32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 6]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 0.0,
    "codecs": [
        {
            "name": "sharding_indexed",
            "configuration": {
                "chunk_shape": [2, 3],
                "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd"}],
                "index_codecs": [{"name": "bytes"}, {"name": "crc32c"}],
                "index_location": "end",
            },
        }
    ],
}
SECOND = {
    "zarr_format": 2,
    "shape": [4, 6],
    "chunks": [2, 6],
    "dtype": "<f4",
    "compressor": {"id": "zstd", "level": 1},
    "filters": None,
    "order": "C",
    "dimension_separator": ".",
    "fill_value": None,
}


def places_in(value: Any) -> list[tuple[Any, Any]]:
    """Return each container in a JSON value with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in [(value, key), *places_in(value[key])]]


@given(st.sampled_from([SECOND, THIRD]), st.integers(0, 100), json_values)
def test_arrays_described_in_any_way_are_values_or_errors_of_ours(whole: Any, number: int, value: Any) -> None:
    array = json.loads(json.dumps(whole))
    places = places_in(array)
    container, key = places[number % len(places)]
    container[key] = value
    try:
        parse_zarr(json.dumps(array).encode(), is_zarr3=whole is THIRD)
    except TensorkeepError:
        return
