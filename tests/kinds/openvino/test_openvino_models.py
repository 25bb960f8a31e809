"""Models that OpenVINO writes: every type, constants in nested graphs, shared ones, verdicts of scan; broken ones."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pytest
from openvino import Model, Tensor, Type, opset13

import tensorkeep
from tensorkeep.errors import FormatError, LimitError, SourceMissingError, TensorkeepError, UnsupportedError
from tests.support.remote.fault_server import FaultServer

TYPES = {
    "boolean": "BOOL",
    "bf16": "BF16",
    "f16": "F16",
    "f32": "F32",
    "f64": "F64",
    "f8e4m3": "F8_E4M3",
    "f8e5m2": "F8_E5M2",
    "f8e8m0": "F8_E8M0",
    "i8": "I8",
    "i16": "I16",
    "i32": "I32",
    "i64": "I64",
    "u8": "U8",
    "u16": "U16",
    "u32": "U32",
    "u64": "U64",
}


def saved(path: Path, *constants: Any, parameters: Any = ()) -> Path:
    model = Model([opset13.result(constant) for constant in constants], list(parameters), "net")
    openvino.save_model(model, path, compress_to_fp16=False)
    return path


def constant_of(element_type: str, raw: bytes, shape: list[int], name: str = "w") -> Any:
    tensor = Tensor(getattr(Type, element_type), shape)
    tensor.data.view(np.uint8).reshape(-1)[:] = np.frombuffer(raw, np.uint8)
    return opset13.constant(tensor, name=name)


@pytest.mark.parametrize("element_type", TYPES)
def test_each_type(element_type: str, tmp_path: Path) -> None:
    width = max(1, getattr(Type, element_type).bitwidth // 8)
    raw = bytes(range(6 * width))
    if element_type == "boolean":
        raw = bytes([0, 1, 0, 1, 1, 1])
    path = saved(tmp_path / "a.xml", constant_of(element_type, raw, [2, 3]))

    with tensorkeep.open(path) as file:
        assert {name: file[name].dtype for name in file} == {"w": TYPES[element_type]}
        assert file["w"].load().tobytes() == raw
        assert file["w"][1].tobytes() == raw[3 * width :]


@pytest.mark.parametrize(
    ("element_type", "raw", "numbers"),
    [
        ("i4", b"\x21\xf3\x0e", [1, 2, 3, -1, -2]),
        ("u4", b"\x21\xf3\x0e", [1, 2, 3, 15, 14]),
        ("u2", b"\xe4\x01", [0, 1, 2, 3, 1]),
    ],
    ids=["i4", "u4", "u2"],
)
def test_integers_of_a_few_bits(element_type: str, raw: bytes, numbers: list[int], tmp_path: Path) -> None:
    constant = constant_of(element_type, raw, [5])
    path = saved(tmp_path / "a.xml", constant)
    result = openvino.Core().compile_model(Model([opset13.result(opset13.convert(constant, "i32"))], [], "n"), "CPU")
    assert result([])[0].tolist() == numbers

    with tensorkeep.open(path) as file:
        assert file["w"].load().tolist() == numbers
        assert file["w"][1:4].tolist() == numbers[1:4]
        assert file.metadata["openvino.widened"] == f'{{"w":"{element_type}"}}'
    with tensorkeep.open(saved(tmp_path / "b.xml", constant_of("nf4", b"\x21\xf3", [4]))) as file:
        assert "nf4" in file.unknowns["w"]


def branching(path: Path) -> Path:
    x = opset13.parameter([2], np.float32, name="x")
    branch = opset13.if_op(opset13.constant(np.array(True), name="cond"))
    branch.set_friendly_name("If")
    bodies = []
    for number in (1.0, 3.0):
        inner = opset13.parameter([2], np.float32)
        weight = opset13.constant(np.array([number, number], np.float32), name="inner")
        bodies.append((Model([opset13.result(opset13.add(inner, weight))], [inner]), inner))
    (then, one), (other, two) = bodies
    branch.set_then_body(then)
    branch.set_else_body(other)
    branch.set_input(x.output(0), one, two)
    out = branch.set_output(then.results[0], other.results[0])
    model = Model([opset13.result(out)], [x], "net")
    model.set_rt_info("a note", ["custom", "key"])
    openvino.save_model(model, path, compress_to_fp16=False)
    return path


def test_constants_in_graphs_within_graphs(tmp_path: Path) -> None:
    with tensorkeep.open(branching(tmp_path / "a.xml")) as file:
        assert set(file) == {"cond", "If.then_body.inner", "If.else_body.inner"}
        assert file["If.else_body.inner"].load().tolist() == [3, 3]
        assert file.metadata["openvino.name"] == "net"
        assert file.metadata["openvino.custom.key"] == "a note"


def test_equal_names_and_shared_bytes(tmp_path: Path) -> None:
    numbers = np.arange(6, dtype=np.float32)
    constants = [opset13.constant(array, name="w") for array in (numbers, numbers[:2])]
    path = saved(tmp_path / "a.xml", *constants, opset13.constant(numbers, name="twin <&\"é'\n"))

    with tensorkeep.open(path) as file:
        names = list(file)
        assert sorted(name[:2] for name in names) == ["tw", "w#", "w#"]
        assert "twin <&\"é'\n" in names
        assert sorted(len(file[name].load()) for name in names) == [2, 6, 6]
    assert len(tensorkeep.convert(path, tmp_path / "a.safetensors").ties) == 1


def test_empty_constants_and_models_without_any(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.xml", opset13.constant(np.zeros((0, 3), np.float32), name="e"))
    assert tensorkeep.load(path)["e"].shape == (0, 3)
    x = opset13.parameter([2], np.float32, name="x")
    assert list(tensorkeep.open(saved(tmp_path / "b.xml", x, parameters=[x]))) == []


def test_the_other_file_must_be_there(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.xml", opset13.constant(np.ones(3, np.float32), name="w"))
    with pytest.raises(UnsupportedError, match="Open it by its path or URL"):
        tensorkeep.open(path.read_bytes())
    weights = path.with_suffix(".bin").read_bytes()
    path.with_suffix(".bin").write_bytes(weights[:-1])
    with pytest.raises(FormatError, match="the file ends before tensor `w` does"):
        tensorkeep.open(path)
    path.with_suffix(".bin").unlink()
    with pytest.raises(SourceMissingError):
        tensorkeep.open(path)


def test_a_link_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.xml", opset13.constant(np.ones(3, np.float32), name="w"))
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.write_bytes(path.with_suffix(".bin").read_bytes())
    path.with_suffix(".bin").unlink()
    path.with_suffix(".bin").symlink_to(outside)

    with pytest.raises(UnsupportedError, match="a link out of the directory"):
        tensorkeep.open(path)


def test_both_files_are_fetched_from_a_server_in_few_requests(tmp_path: Path) -> None:
    constants = [opset13.constant(np.full(5000, number, np.float32), name=f"w{number}") for number in range(50)]
    path = saved(tmp_path / "a.xml", *constants)
    files = {name: (tmp_path / name).read_bytes() for name in ("a.xml", "a.bin")}
    with FaultServer(files) as server:
        with tensorkeep.open(f"{server.url}a.xml") as file:
            n_opening = len(server.requests)
            assert file["w31"][7] == 31
        assert n_opening <= 3
        assert len(server.requests) == n_opening + 1
        tensorkeep.fetch(f"{server.url}a.xml", tmp_path / "here")
    assert tensorkeep.load(tmp_path / "here" / "a.xml").keys() == tensorkeep.load(path).keys()


def test_scan_names_operators_of_other_libraries(tmp_path: Path) -> None:
    path = branching(tmp_path / "a.xml")
    assert tensorkeep.scan(path).is_clean
    assert tensorkeep.scan(tmp_path).is_clean  # the weights too
    assert {file.form for file in tensorkeep.scan(tmp_path).files} == {
        "OpenVINO model",
        "weights of an OpenVINO model",
    }

    path.write_text(path.read_text().replace('type="Add" version="opset1"', 'type="Mine" version="extension"', 1))

    (found,) = tensorkeep.scan(path).files[0].findings
    assert "operators of 'extension' need a library" in found.message
    assert "Mine" in found.message


CONST = '<layer id="0" name="w" type="Const" version="opset1"><data element_type="f32" shape="3" {} /></layer>'


def net(*layers: str, version: str = "11", before: str = "") -> str:
    return f'{before}<net name="n" version="{version}"><layers>{"".join(layers)}</layers></net>'


def opened(directory: Path, text: str | bytes, weights: bytes = bytes(64)) -> Any:
    (directory / "a.xml").write_bytes(text if isinstance(text, bytes) else text.encode())
    (directory / "a.bin").write_bytes(weights)
    return tensorkeep.open(directory / "a.xml")


GOOD = CONST.format('offset="0" size="12"')


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (net(CONST.format('offset="-1" size="12"')), FormatError),
        (net(CONST.format('offset="60" size="12"')), FormatError),
        (net(CONST.format('offset="9223372036854775807" size="12"')), FormatError),
        (net(CONST.format('offset="9999999999999999999" size="12"')), FormatError),
        (net(CONST.format('offset="0" size="8"')), FormatError),
        (net(CONST.format('size="12"')), FormatError),
        (net(CONST.format('offset="0" offset="1" size="12"')), FormatError),
        (net(GOOD.replace('shape="3"', 'shape="3,?"')), FormatError),
        (net(GOOD.replace('shape="3"', 'shape="9999999999,9999999999"')), FormatError),
        (net(GOOD.replace('shape="3"', f'shape="{"1," * 2000}1"')), FormatError),
        (net(GOOD, GOOD), FormatError),
        (net(GOOD.replace('"f32"', '"i4"')), FormatError),
        (net(GOOD, version="7"), UnsupportedError),
        (net(GOOD, version=""), UnsupportedError),
        (net(GOOD) + net(GOOD), FormatError),
        (net(GOOD)[:-1], FormatError),
        (net(GOOD)[:-6], FormatError),
        (net(GOOD).replace("</layers>", "</layer>"), FormatError),
        (net("&lt;<![CDATA[x]]>"), FormatError),
        (net("<?php x?>"), FormatError),
        (net('<!DOCTYPE x [<!ENTITY a "b">]>'), FormatError),
        (net(GOOD.replace('"w"', '"&#xD800;"')), FormatError),
        (net("<a>" * 200 + "</a>" * 200), LimitError),
        (net("<a/>" * 2_000_001), LimitError),
        (net(GOOD).encode("utf-16"), TensorkeepError),
        (net(GOOD).encode().replace(b'"w"', b'"\xff"'), FormatError),
        ('<?xml version="1.0"?><net', TensorkeepError),
    ],
    ids=range(27),
)
def test_impossible_models_are_refused(text: str | bytes, error: type[TensorkeepError], tmp_path: Path) -> None:
    with pytest.raises(error):
        opened(tmp_path, text)


def test_entities_are_never_expanded(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE net [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;">]>'
    with pytest.raises(TensorkeepError):
        opened(tmp_path, f'<?xml version="1.0"?>{bomb}{net(GOOD)}')
    assert list(opened(tmp_path, net(GOOD.replace('"w"', '"&a;&amp;"')))) == ["&a;&"]


def test_many_views_of_one_constant_are_not_loaded_at_once(tmp_path: Path) -> None:
    layers = [
        GOOD.replace('"3"', '"1000000"').replace('"12"', '"4000000"').replace('"w"', f'"w{n}"') for n in range(300)
    ]
    with opened(tmp_path, net(*layers), bytes(4_000_000)) as file:
        assert file["w7"].load().shape == (1_000_000,)
        with pytest.raises(LimitError, match="many times the size"):
            file.load()


def test_truncations_and_flips(tmp_path: Path) -> None:
    data = branching(tmp_path / "b.xml").read_bytes()
    weights = (tmp_path / "b.bin").read_bytes()
    chance = random.Random(0)
    for number in range(1500):
        broken = bytearray(data[: number * 3] if number < 500 else data)
        for _ in range(chance.randrange(1, 4) if number >= 500 else 0):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        try:
            with opened(tmp_path, bytes(broken), weights) as file:
                file.load()
        except TensorkeepError:
            pass


def test_hostile_texts_take_no_time(tmp_path: Path) -> None:
    begun = time.perf_counter()
    n = 500_000
    for text in ("<net " + "a='b' " * n, "<!--" + "- " * n, "<net" + " " * n, "<net><!-" + "-" * n):
        with pytest.raises(TensorkeepError):
            opened(tmp_path, text)
    assert time.perf_counter() - begun < 5


def test_twenty_thousand_constants_open_quickly(tmp_path: Path) -> None:
    layers = [GOOD.replace('"w"', f'"layers.{number}.weight"') for number in range(20_000)]
    begun = time.perf_counter()
    assert len(opened(tmp_path, net(*layers))) == 20_000
    assert time.perf_counter() - begun < 5
