"""What docs/format.md says is what tensorkeep and the reference do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import tensorkeep
from tensorkeep.dtypes import DTYPES
from tensorkeep.formats.safetensors import Alias
from tensorkeep.state import _decode, _scalars, decode_tree, encode_tree
from tests.support import ROOT

PAGE = ROOT.joinpath("docs", "format.md").read_text(encoding="utf-8")
BYTE = '"dtype":"U8","shape":[1],"data_offsets":[0,1]'


def test_the_table_has_the_dtypes_in_the_order_of_the_format() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| .* \| `(\w+)` \| (?:`(\w+)` )?\|$", PAGE, re.MULTILINE)

    assert rows == [(dtype.name, str(dtype.bits), dtype.numpy, dtype.torch or "") for dtype in DTYPES]


def example_in_bytes(heading: str) -> bytes:
    section = PAGE.partition(f"# {heading}\n")[2].partition("```python")[0]
    return bytes.fromhex("".join(re.findall(r"^[0-9a-f]{8}: ((?:[0-9a-f]{2,4} )+) ", section, re.MULTILINE)))


def test_the_example_is_what_both_libraries_write(tmp_path: Path) -> None:
    example = example_in_bytes("A file, byte by byte")
    tensors = {"b": np.array([1, 2, 3], np.uint8), "w": np.array([1, -2], np.float32)}
    metadata = {"made by": "hand"}

    tensorkeep.save(tensors, tmp_path / "example.safetensors", metadata=metadata, digests=False)

    assert (tmp_path / "example.safetensors").read_bytes() == example
    assert safetensors.numpy.save(tensors, metadata) == example


def test_the_example_of_a_state_is_what_is_written(tmp_path: Path) -> None:
    matrix = np.array([[1, 2], [3, 4]], np.float32)
    state = {"model": {"embed": matrix, "head": matrix}, 7: ("x", None)}

    tensorkeep.save(state, tmp_path / "state.safetensors", digests=False)

    assert (tmp_path / "state.safetensors").read_bytes() == example_in_bytes("A state, byte by byte")


def nodes_of_the_page() -> list[tuple[list[str], list[object]]]:
    rows = re.findall(r"^\| ((?:`\w+` )+)\| .* \| `(\[.*\])` \|$", PAGE, re.MULTILINE)
    return [(re.findall(r"\w+", tags), json.loads(example)) for tags, example in rows]


def test_the_table_has_every_kind_of_node() -> None:
    tags = [tag for tags, _ in nodes_of_the_page() for tag in tags]

    assert sorted(tags) == sorted({*_decode._CONTAINERS, *_decode._WHOLE, *_scalars.SCALAR_TAGS})


@pytest.mark.parametrize(("tags", "example"), nodes_of_the_page(), ids=lambda part: "")
def test_an_example_of_a_node_is_what_is_written_for_its_value(tags: list[str], example: list[object]) -> None:
    assert example[0] in tags or "same" in tags

    value = decode_tree(example, tensor=None, compose=lambda composed: composed, find_class=lambda _: None)

    assert encode_tree(value, leaf=lambda _: None, compose=lambda _: None).tree == example


def test_the_members_of_an_alias_are_those_of_the_table() -> None:
    section = PAGE.partition("### Aliases\n")[2].partition("Let `start`")[0]

    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(Alias.__struct_fields__)


def file_of(header: str, data: bytes) -> bytes:
    header = header.replace("BYTE", BYTE)
    return len(header).to_bytes(8, "little") + header.encode() + data


@pytest.mark.parametrize(
    "content",
    [
        file_of('{"a":{BYTE},"a":{BYTE}}', b"1"),
        file_of('{"__metadata__":{"a":"1","a":"2"}}', b""),
        file_of('{"a":{BYTE,"more":1,"more":2}}', b"1"),
        file_of('{"a":["U8",[1],[0,1]]}', b"1"),
        file_of('{"a":{"dtype":{"U8":null},"shape":[1],"data_offsets":[0,1]}}', b"1"),
    ],
    ids=["name twice", "metadata key twice", "unread field twice", "entry as list", "dtype as object"],
)
def test_only_tensorkeep_refuses(content: bytes) -> None:
    safetensors.deserialize(content)

    with pytest.raises(tensorkeep.TensorkeepError):
        tensorkeep.open(content)


@pytest.mark.parametrize(
    "content",
    [
        file_of('{"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}', b""),
        file_of('{"a":{BYTE,"more":1e999}}', b"1"),
        file_of('{"a":{BYTE,"more":' + "[" * 130 + "]" * 130 + "}}", b"1"),
    ],
    ids=["-0", "large number", "deep nesting"],
)
def test_only_tensorkeep_opens(content: bytes) -> None:
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize(content)

    assert list(tensorkeep.open(content)) == ["a"]


def test_only_tensorkeep_opens_a_file_with_an_unknown_dtype(tmp_path: Path) -> None:
    content = file_of('{"a":{BYTE},"b":{"dtype":"F128","shape":[1],"data_offsets":[1,17]}}', b"1" + bytes(16))
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize(content)

    file = tensorkeep.open(content)
    tensorkeep.save(file, tmp_path / "copy.safetensors")

    assert (file["a"][0], file["b"].dtype) == (ord("1"), "F128")
    assert tensorkeep.open(tmp_path / "copy.safetensors").entries["b"].nbytes == 16
    with pytest.raises(tensorkeep.errors.DtypeError):
        file["b"].load()


@pytest.mark.parametrize(
    "content",
    [
        file_of(' {"a":{BYTE}}\n\t', b"1"),
        file_of('{"a":{BYTE},"__metadata__":null}', b"1"),
        file_of('{"a":{BYTE},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}}', b"12345"),
        file_of('{"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}', b"\x02"),
        file_of('{"a":{"dtype":"U8","shape":[' + "1," * 64 + '1],"data_offsets":[0,1]}}', b"1"),
        file_of('{"a":{BYTE},"":{"dtype":"F32","shape":[0,3],"data_offsets":[1,1]}}', b"1"),
        file_of('{"a":{BYTE,"more":1}}', b"1"),
    ],
    ids=["whitespace", "metadata null", "misaligned", "boolean 2", "65 dimensions", "no elements", "another field"],
)
def test_both_open(content: bytes) -> None:
    names = {name for name, _ in safetensors.deserialize(content)}

    assert set(tensorkeep.open(content)) == names
