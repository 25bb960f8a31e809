"""ONNX models: messages of Protocol Buffers in which operators, tensors and graphs are nested. No operator is run.

- `_read`: `parse_onnx`, which finds every tensor of a model, and what else it says.
- `_recognize`: whether bytes are a model, which has no magic number.
- `_graphs`: graphs within graphs, and the names that tensors get.
- `_constants`: constants that nodes hold as plain numbers or text.
- `_tensor`: one tensor of a model.
- `_plain_tensor`: the same in one look, for tensors as almost every program writes them.
- `_elements`: where its elements are.
- `_dtypes`: ONNX's data types, and how their elements are written.
- `_decoded`: elements that are not stored as memory has them, decoded when they are read.
- `_model`: what a model holds: tensors, references to other files, operators.
"""

from tensorkeep.formats.onnx._decoded import NarrowIntegers
from tensorkeep.formats.onnx._elements import place_raw
from tensorkeep.formats.onnx._model import ExternalTensor, OnnxModel, Operator
from tensorkeep.formats.onnx._read import parse_onnx
from tensorkeep.formats.onnx._recognize import MAGICS, begins_like_onnx, is_onnx

__all__ = [
    "MAGICS",
    "ExternalTensor",
    "NarrowIntegers",
    "OnnxModel",
    "Operator",
    "begins_like_onnx",
    "is_onnx",
    "parse_onnx",
    "place_raw",
]
