"""Who holds the tensor? One file per array library, imported on first use; none knows files or formats.

- `_base`: `ArrayAdapter`, what tensors need from a library; `HostTensor`, a tensor on its way to a file;
  `Extent`, where it lies in memory.
- `_pieces`: how a tensor is cut when it must be copied in bounded memory. Pure.
- `elements`: a tensor's bytes as unsigned numbers, one per element; fp4 and fp6 unpacked (imports NumPy).
- `_torch_composed`: sparse, quantized and nested tensors of torch, checked and made.
- `_numpy`, `_torch`: the adapters.
- `_registry`: the adapter for a framework's name or for a tensor.
"""

from tensorkeep.arrays._base import ArrayAdapter, Extent, HostTensor
from tensorkeep.arrays._pieces import pieces
from tensorkeep.arrays._registry import FRAMEWORKS, adapter_for, check_framework, host_tensor

__all__ = [
    "FRAMEWORKS",
    "ArrayAdapter",
    "Extent",
    "HostTensor",
    "adapter_for",
    "check_framework",
    "host_tensor",
    "pieces",
]
