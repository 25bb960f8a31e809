"""ONNX models keep the contract of kinds, with their tensors inside and in other files."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import ModelProto, helper, numpy_helper

from tests.contracts.kind import Arrays, KindContract


def model_of(arrays: Arrays) -> ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    return helper.make_model(helper.make_graph([], "graph", [], [], initializer=tensors))


class TestOnnxModels(KindContract):
    has_checksums = False

    def save(self, arrays: Arrays, directory: Path) -> Path:
        onnx.save(model_of(arrays), directory / "model.onnx")
        return directory / "model.onnx"


class TestOnnxModelsWithTypedFields(KindContract):
    has_checksums = False

    def save(self, arrays: Arrays, directory: Path) -> Path:
        model = model_of({})
        for name, array in arrays.items():
            number = helper.np_dtype_to_tensor_dtype(array.dtype)
            values = array.reshape(-1).tolist()
            model.graph.initializer.append(helper.make_tensor(name, number, array.shape, values))
        onnx.save(model, directory / "model.onnx")
        return directory / "model.onnx"


class TestOnnxModelsWithOtherFiles(KindContract):
    has_checksums = False

    def save(self, arrays: Arrays, directory: Path) -> Path:
        path = directory / "model.onnx"
        onnx.save_model(model_of(arrays), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
        return path
