"""Who holds the tensor? One file per array library, imported on first use; none knows files or formats.

- `_base`: `ArrayAdapter`, what tensors need from a library; `TensorToWrite`, a tensor on its way to a file; `Extent`,
  where it lies in memory; `EncodedObject`, a value that was taken apart.
- `_pieces`: how a tensor is cut when it must be copied in bounded memory. Pure.
- `elements`: a tensor's bytes as unsigned numbers, one per element; fp4 and fp6 unpacked (imports NumPy).
- `_memory`: the bytes at an address.
- `_attributes`: what is said of a dense tensor beside its elements. Pure.
- `torch/`: torch's tensors.
- `numpy/`: numPy's arrays.
- `_registry`: the adapter for a framework's name or for a tensor.
- `_codec`: what is data but no dense tensor, taken apart and put together by the library that it is of.
"""

from tensorkeep.arrays._attributes import dense_order
from tensorkeep.arrays._base import ArrayAdapter, EncodedObject, Extent, TensorToWrite
from tensorkeep.arrays._codec import attributes_of, decode_object, encode_object, known_class, plain_library
from tensorkeep.arrays._pieces import pieces
from tensorkeep.arrays._registry import FRAMEWORKS, adapter_for, check_framework, is_tensor, tensor_to_write

__all__ = [
    "FRAMEWORKS",
    "ArrayAdapter",
    "EncodedObject",
    "Extent",
    "TensorToWrite",
    "adapter_for",
    "attributes_of",
    "check_framework",
    "decode_object",
    "dense_order",
    "encode_object",
    "is_tensor",
    "known_class",
    "pieces",
    "plain_library",
    "tensor_to_write",
]
