"""Graphs of operators, which are not run, with weights in the file or in others beside it.

- `_onnx`: ONNX models.
- `_openvino`: OpenVINO's models.
- `_beside`: `FilesBeside`, files that a file names, opened below its directory only.
"""

from tensorkeep.kinds.graphs._onnx import ONNX
from tensorkeep.kinds.graphs._openvino import OPENVINO

__all__ = ["ONNX", "OPENVINO"]
