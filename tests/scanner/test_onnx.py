"""ONNX models: clean if they need nothing but a runtime; else the scan says what they need."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

import tensorkeep


def model_of(*nodes: NodeProto, **more: object) -> ModelProto:
    weights = [numpy_helper.from_array(np.ones(3, np.float32), "w")]
    return helper.make_model(helper.make_graph(list(nodes), "graph", [], [], initializer=weights), **more)


def findings_in(path: Path) -> list[tuple[str, str]]:
    (file,) = tensorkeep.scan(path).files
    return [(finding.severity, finding.message) for finding in file.findings]


@pytest.mark.parametrize("name", ["a.onnx", "weights"])
def test_operators_of_the_runtimes_are_clean(name: str, tmp_path: Path) -> None:
    own = helper.make_function("own", "F", ["x"], ["y"], [helper.make_node("Relu", ["x"], ["y"])], [])
    nodes = [
        helper.make_node("Relu", ["w"], ["a"]),
        helper.make_node("FusedMatMul", ["w", "w"], ["b"], domain="com.microsoft"),
        helper.make_node("F", ["a"], ["c"], domain="own"),
    ]
    onnx.save(model_of(*nodes, functions=[own]), tmp_path / name)

    report = tensorkeep.scan(tmp_path / name)

    assert report.is_clean
    assert [file.form for file in report.files] == ["ONNX model"]


def test_operators_that_need_a_library_or_run_code(tmp_path: Path) -> None:
    inner = helper.make_graph([helper.make_node("PyOp", ["w"], ["i"], domain="ai.onnx.contrib")], "inner", [], [])
    nodes = [
        helper.make_node("Mine", ["w"], ["a"], domain="my.ops"),
        helper.make_node("Other", ["w"], ["b"], domain="my.ops"),
        helper.make_node("PythonOp", ["w"], ["c"], domain="com.microsoft", func_name="os.system"),
        helper.make_node("If", ["w"], ["d"], then_branch=inner),
    ]
    onnx.save(model_of(*nodes), tmp_path / "a.onnx")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(tmp_path / "a.onnx", "models/a.onnx")

    for path in (tmp_path / "a.onnx", tmp_path / "a.zip"):
        first, second, third = findings_in(path)
        named = (
            "operator com.microsoft.PythonOp at node `c`: ONNX Runtime calls the Python function that the model names"
        )
        nested = (
            "operator ai.onnx.contrib.PyOp at node `d.then_branch.i`: onnxruntime-extensions calls a Python function"
        )
        assert first == ("suspicious", named)
        assert second == ("suspicious", nested)
        assert third == ("unknown", "operators of my.ops need a library of their own, which runs code: Mine, Other")


def test_tensors_from_elsewhere(tmp_path: Path) -> None:
    model = model_of()
    set_external_data(model.graph.initializer[0], "../../etc/passwd")
    model.graph.initializer[0].ClearField("raw_data")
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())

    assert findings_in(tmp_path / "a.onnx") == [
        (
            "suspicious",
            "a program may read files outside the model's directory as tensors: `w` from '../../etc/passwd'",
        )
    ]


def test_damaged_models_are_unreadable(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(model_of().SerializeToString()[:-3])

    assert [severity for severity, _ in findings_in(tmp_path / "a.onnx")] == ["unreadable"]


@pytest.mark.parametrize("unknown", [b"\x78\x01", b"\xf8\x07\x01", b"\x7b\x7c", b"\x1d1234", b"\x19" + bytes(8)])
def test_fields_that_onnx_passes_over_hide_nothing(unknown: bytes, tmp_path: Path) -> None:
    node = helper.make_node("PyOp", ["w"], ["y"], domain="ai.onnx.contrib")
    (tmp_path / "a.onnx").write_bytes(unknown + model_of(node).SerializeToString())
    assert onnx.load(tmp_path / "a.onnx").graph.node

    np.save(tmp_path / "b.npy", np.ones(2))
    assert tensorkeep.scan(tmp_path).verdict != "clean"
