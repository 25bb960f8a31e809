"""Models of OpenVINO keep the contract of kinds."""

from __future__ import annotations

from pathlib import Path

import openvino
from openvino import opset13

from tests.contracts.kind import Arrays, KindContract


class TestOpenVinoModels(KindContract):
    has_checksums = False

    def save(self, arrays: Arrays, directory: Path) -> Path:
        results = [opset13.result(opset13.constant(array, name=name)) for name, array in arrays.items()]
        openvino.save_model(openvino.Model(results, [], "net"), directory / "model.xml", compress_to_fp16=False)
        return directory / "model.xml"
