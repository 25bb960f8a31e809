"""GGUF files that tensorkeep writes: the gguf package reads them, and files come back from safetensors unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from gguf import GGUFEndian, GGUFReader, quants

import tensorkeep
from tensorkeep.errors import DtypeError, FormatError, LimitError, RefusedError
from tests.support.formats.crafted_gguf import crafted, entry, info
from tests.support.formats.gguf_files import random_blocks, write_gguf

RNG = np.random.default_rng(3)
ARRAYS: dict[str, Any] = {
    "f32": RNG.standard_normal((4, 64)).astype(np.float32),
    "f16": RNG.standard_normal((2, 3, 32)).astype(np.float16),
    "bf16": RNG.standard_normal((4, 96)).astype(ml_dtypes.bfloat16),
    "f64": RNG.standard_normal(5),
    "i8": np.arange(6, dtype=np.int8).reshape(2, 3),
    "i16": np.arange(6, dtype=np.int16),
    "i32": np.arange(6, dtype=np.int32),
    "i64": np.arange(6, dtype=np.int64),
    "scalar": np.array(1.5, np.float32),
    "empty": np.zeros((0, 3), np.float32),
    "größe": np.ones(3, np.float32),
}
TYPES = [type_ for type_ in Type if type_.name in {"Q4_0", "Q4_K", "Q6_K", "IQ3_S", "NVFP4", "Q8_1"}]
BLOCKS = {type_.name: (random_blocks(type_, 3, 9, seed=type_.value), type_) for type_ in TYPES if type_ != Type.Q8_1}
KEYS = {
    "general.name": "Test",
    "texts": ["a", "", "ü"],
    "floats": [0.1, float("inf"), float("-inf")],
    "numbers": [1, -2],
    "flags": [True, False],
    "bytes": [b"\xff", b"fine"],
    "nested": [[1, 2], [3]],
    "mixed": [[1], ["a"], [[0.5]]],
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    tensorkeep.save(ARRAYS, tmp_path / "a.safetensors", metadata={"general.architecture": "llama", "note": "ü"})
    return tmp_path / "a.safetensors"


@pytest.fixture
def quantized(tmp_path: Path) -> Path:
    write_gguf(tmp_path / "m.gguf", {"norm": np.ones(4, np.float32)}, blocks=BLOCKS, keys=KEYS)
    return tmp_path / "m.gguf"


def read(path: Path) -> dict[str, Any]:
    return {tensor.name: tensor for tensor in GGUFReader(path).tensors}


def test_every_dtype_is_read_by_the_gguf_package(source: Path, tmp_path: Path) -> None:
    done = tensorkeep.export(source, tmp_path / "m.gguf")

    found = read(tmp_path / "m.gguf")
    assert done.is_checked
    assert sorted(found) == sorted(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].data.tobytes() == array.tobytes()
        assert tuple(reversed(found[name].shape.tolist())) == array.shape
    assert tensorkeep.diff(source, tmp_path / "m.gguf").is_equal
    reader = GGUFReader(tmp_path / "m.gguf")
    assert reader.fields["general.architecture"].contents() == "llama"
    assert reader.fields["note"].contents() == "ü"


def test_tensors_follow_each_other_as_ggml_expects(source: Path, tmp_path: Path) -> None:
    tensorkeep.export(source, tmp_path / "m.gguf")

    stop = GGUFReader(tmp_path / "m.gguf").data_offset
    for tensor in GGUFReader(tmp_path / "m.gguf").tensors:
        assert tensor.data_offset == stop
        stop += tensor.n_bytes + -tensor.n_bytes % 32
    assert (tmp_path / "m.gguf").stat().st_size == stop


def test_q8_0_is_what_the_gguf_package_makes(source: Path, tmp_path: Path) -> None:
    tensorkeep.export(source, tmp_path / "m.gguf", cast="q8_0")

    found = read(tmp_path / "m.gguf")
    for name in ("f32", "f16", "bf16"):
        expected = quants.quantize(ARRAYS[name].astype(np.float32), Type.Q8_0)
        assert found[name].tensor_type == Type.Q8_0
        np.testing.assert_array_equal(found[name].data.reshape(-1), expected.reshape(-1))
    assert found["f64"].tensor_type == Type.F64  # no matrix
    assert GGUFReader(tmp_path / "m.gguf").fields["general.quantization_version"].contents() == 2


def test_large_tensors_are_quantized_piece_by_piece(tmp_path: Path) -> None:
    array = RNG.standard_normal((700, 1024 + 32)).astype(np.float16)
    tensorkeep.save({"w": array}, tmp_path / "a.safetensors")

    tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "m.gguf", cast="q8_0")

    expected = quants.quantize(array.astype(np.float32), Type.Q8_0)
    np.testing.assert_array_equal(read(tmp_path / "m.gguf")["w"].data.reshape(-1), expected.reshape(-1))


def test_a_file_comes_back_from_safetensors_as_it_was(quantized: Path, tmp_path: Path) -> None:
    tensorkeep.convert(quantized, tmp_path / "a.safetensors")
    tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "b.gguf")

    assert (tmp_path / "b.gguf").read_bytes() == quantized.read_bytes()


def test_a_file_comes_back_from_its_shards(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    write_gguf(tmp_path / "shards" / "m.gguf", {}, blocks=BLOCKS, keys=KEYS, split_max_tensors=2)
    write_gguf(tmp_path / "one.gguf", {}, blocks=BLOCKS, keys=KEYS)

    tensorkeep.export(tmp_path / "shards", tmp_path / "b.gguf")

    assert (tmp_path / "b.gguf").read_bytes() == (tmp_path / "one.gguf").read_bytes()


def test_values_of_every_type_come_back(tmp_path: Path) -> None:
    values = {"u8": 1, "i8": -1, "u16": 2, "i16": -2, "u32": 3, "i32": -3, "u64": 2**63, "i64": -5, "f64": 0.1}
    entries = [entry(key, key, value) for key, value in values.items()]
    entries += [
        entry("raw", "string", b"\xff"),
        entry("f32", "f32", float("nan")),
        entry("general.alignment", "u32", 64),
    ]
    entries += [entry("none", "array:u32", []), entry("no lists", "array:array:u32", []), entry("bool", "bool", 1)]
    (tmp_path / "m.gguf").write_bytes(crafted(entries, [info("w", (2,), 0, 0)], bytes(64), alignment=64))

    tensorkeep.convert(tmp_path / "m.gguf", tmp_path / "a.safetensors")
    tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "b.gguf")

    assert (tmp_path / "b.gguf").read_bytes() == (tmp_path / "m.gguf").read_bytes()


def test_blocks_can_be_chosen_renamed_and_dequantized(quantized: Path, tmp_path: Path) -> None:
    tensorkeep.export(quantized, tmp_path / "b.gguf", select=["Q4_K", "norm"], rename={"Q4_K": "w"})
    tensorkeep.export(quantized, tmp_path / "c.gguf", dequantize="f32")

    assert {name: tensor.tensor_type for name, tensor in read(tmp_path / "b.gguf").items()} == {
        "w": Type.Q4_K,
        "norm": Type.F32,
    }
    with np.errstate(all="ignore"):
        expected = quants.dequantize(*BLOCKS["Q6_K"])
    np.testing.assert_array_equal(read(tmp_path / "c.gguf")["Q6_K"].data, expected)


def test_what_gguf_lacks_is_refused(tmp_path: Path, quantized: Path) -> None:
    def refuse(error: type[Exception], message: str, arrays: dict[str, Any], metadata: Any = None) -> None:
        tensorkeep.save(arrays, tmp_path / "a.safetensors", metadata=metadata)
        with pytest.raises(error, match=message):
            tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "x.gguf")
        assert not (tmp_path / "x.gguf").exists()

    one = np.ones(2, np.float32)
    refuse(DtypeError, "BOOL", {"w": np.array([True])})
    refuse(DtypeError, "GGUF has no dtype for tensor `w`", {"w": np.ones(34, np.uint8)})
    refuse(LimitError, "4 dimensions", {"w": np.ones((1, 1, 1, 1, 2), np.float32)})
    refuse(RefusedError, "64 bytes, and ggml reads up to 63", {"w" * 64: one})
    refuse(FormatError, "not what tensorkeep.gguf says", {"w": one}, {"tensorkeep.gguf": "{"})
    refuse(FormatError, "not what tensorkeep.gguf says", {"w": one}, {"tensorkeep.gguf": "[" * 100_000})
    wrong = [("u8", "256"), ("u8", '"a"'), ("[u8]", "1"), ("odd", "1"), ("[[u8]", "[[1]]"), ("[string]", "[1]")]
    for type_, text in wrong:
        metadata = {"tensorkeep.gguf": json.dumps({"types": {"k": type_}}), "k": text}
        refuse(FormatError, "does not have its type|not what", {"w": one}, metadata)
    refuse(FormatError, "general.alignment", {"w": one}, {"general.alignment": "48"})
    write_gguf(tmp_path / "big.gguf", {}, blocks=BLOCKS, endianess=GGUFEndian.BIG)
    with pytest.raises(DtypeError, match="big-endian"):
        tensorkeep.export(tmp_path / "big.gguf", tmp_path / "x.gguf")
    tensorkeep.convert(tmp_path / "big.gguf", tmp_path / "big.safetensors")
    with pytest.raises(DtypeError, match="big-endian"):
        tensorkeep.export(tmp_path / "big.safetensors", tmp_path / "x.gguf")


def test_an_alignment_that_is_text_is_written_as_a_number(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(3, np.float32)}, tmp_path / "a.safetensors", metadata={"general.alignment": "64"})

    tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "a.gguf")

    reader = GGUFReader(tmp_path / "a.gguf")
    assert reader.alignment == 64
    assert reader.tensors[0].data.tolist() == [1, 1, 1]


def test_an_alignment_that_no_file_has_is_refused_with_advice(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(3, np.float32)}, tmp_path / "a.safetensors", metadata={"general.alignment": "wide"})

    with pytest.raises(FormatError, match=r"general\.alignment.*found 'wide'.*edit --unset general\.alignment"):
        tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "a.gguf")
