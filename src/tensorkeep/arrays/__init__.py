"""Who holds the tensor? One file per array library, imported on first use; none knows files or formats.

- `_base`: `ArrayAdapter`, what tensors need from a library; `HostTensor`, a tensor on its way to a file;
  `Extent`, where it lies in memory; `Composed`, a value that was taken apart.
- `_pieces`: how a tensor is cut when it must be copied in bounded memory. Pure.
- `elements`: a tensor's bytes as unsigned numbers, one per element; fp4 and fp6 unpacked (imports NumPy).
- `_memory`: the bytes at an address.
- `_marks`: what is said of a dense tensor beside its elements. Pure.
- `torch_devices`: devices of torch that there are here (imports torch).
- `_torch_composed`: sparse, quantized, nested and wide complex tensors of torch, checked and made.
- `_torchao`: the closed registry of tensors that wrap others, and what must be true of their parts.
- `_torch_subclasses`: tensors that wrap others, taken apart and put together.
- `_torch_apart`: all that is data of torch, taken apart and put together.
- `_torch_marks`: parameters, gradients and memory formats of torch.
- `_numpy_dtypes`, `_numpy_padding`, `_numpy_random`, `_numpy_apart`: the same for NumPy: its dtypes, bytes that
  hold nothing, its random generators, all of it.
- `_numpy`, `_torch`: the adapters.
- `_registry`: the adapter for a framework's name or for a tensor.
- `_apart`: what is data but no dense tensor, taken apart and put together by the library that it is of.
"""

from tensorkeep.arrays._apart import known_class, marks_of, plain_library, put_together, take_apart
from tensorkeep.arrays._base import ArrayAdapter, Composed, Extent, HostTensor
from tensorkeep.arrays._marks import dense_order
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
