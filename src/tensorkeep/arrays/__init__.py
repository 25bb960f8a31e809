"""Who holds the tensor? One file per array library, imported on first use; none knows files or formats.

- `_base`: `ArrayAdapter`, what tensors need from a library; `HostTensor`, a tensor on its way to a file; `Extent`,
  where it lies in memory; `Composed`, a value that was taken apart.
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
from tensorkeep.arrays._base import ArrayAdapter, Composed, Extent, HostTensor
from tensorkeep.arrays._codec import known_class, marks_of, plain_library, put_together, take_apart
from tensorkeep.arrays._pieces import pieces
from tensorkeep.arrays._registry import FRAMEWORKS, adapter_for, check_framework, host_tensor, is_tensor

__all__ = [
    "FRAMEWORKS",
    "ArrayAdapter",
    "Composed",
    "Extent",
    "HostTensor",
    "adapter_for",
    "check_framework",
    "dense_order",
    "host_tensor",
    "is_tensor",
    "known_class",
    "marks_of",
    "pieces",
    "plain_library",
    "put_together",
    "take_apart",
]
