"""What docs/format.md says is what tensorkeep and the reference do."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import tensorkeep
from tensorkeep.dtypes import DTYPES

PAGE = Path(__file__).parents[2].joinpath("docs", "format.md").read_text(encoding="utf-8")
BYTE = '"dtype":"U8","shape":[1],"data_offsets":[0,1]'


def test_the_table_has_the_dtypes_in_the_order_of_the_format() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| .* \| `(\w+)` \| (?:`(\w+)` )?\|$", PAGE, re.MULTILINE)

    assert rows == [(dtype.name, str(dtype.bits), dtype.numpy, dtype.torch or "") for dtype in DTYPES]


def test_the_example_is_what_both_libraries_write(tmp_path: Path) -> None:
    lines = re.findall(r"^[0-9a-f]{8}: ((?:[0-9a-f]{2,4} )+) ", PAGE, re.MULTILINE)
    example = bytes.fromhex("".join(lines))
    tensors = {"b": np.array([1, 2, 3], np.uint8), "w": np.array([1, -2], np.float32)}
    metadata = {"made by": "hand"}

    tensorkeep.save(tensors, tmp_path / "example.safetensors", metadata=metadata, digests=False)

    assert (tmp_path / "example.safetensors").read_bytes() == example
    assert safetensors.numpy.save(tensors, metadata) == example


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
