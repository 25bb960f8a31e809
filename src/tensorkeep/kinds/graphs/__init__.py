"""Graphs of operators, which are not run, with weights in the file or in others beside it.

- `_onnx`: ONNX models.
- `_beside`: `FilesBeside`, files that a file names, opened below its directory only.
"""

from tensorkeep.kinds.graphs._onnx import ONNX

__all__ = ["ONNX"]
