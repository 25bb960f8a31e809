"""Who holds the tensor? One folder per array library; none knows files or formats.

A new library is a folder and a record in the table of `_registry`; `tests/contracts/array_library.py` says whether it
does everything right. A library is imported when the first tensor of it is made.

- `_base`: `Library`, the record of a library, and the interfaces that it implements: `DenseArrays` (all of them),
  `FilledArrays`, `SharedMemory` and `ObjectCodec` (some); and what these return: `TensorToWrite`, `StreamedTensor`,
  `EncodedObject`.
- `_framework`: array libraries and their tensors in annotations. Pure.
- `_registry`: the table, and the library for a name or a tensor.
- `_codec`: objects of any library as plain data and back.
- `_fetching`: copies from a device in the background: `FetchingMemory`, which some implement. Pure.
- `_device_memory`: copies to it: `DeviceMemory`, which some implement, and `Order`. Pure.
- `_arithmetic`: what formulas of quantized numbers need: `Arithmetic`, for NumPy and for devices of torch. Pure.
- `_dlpack`: objects of other libraries that export their memory.
- `_attributes`: what is kept of a dense tensor beside its elements. Pure.
- `_pieces`: how a tensor is cut to be copied in bounded memory. Pure.
- `_alignment`: arrays at addresses that a library can share (imports NumPy).
- `_by_numpy`: dense tensors of libraries that are given and give NumPy's arrays (imports NumPy).
- `elements`: elements as unsigned integers, the form in which they are moved; F4 and F6 unpacked (imports NumPy).
- `in_memory`: tensors whose memory is what a file will hold (imports ctypes).
- `sharing`: tensors over common memory, also for libraries that can only copy (imports NumPy).
- `numpy/`: NumPy's arrays.
- `torch/`: torch's tensors.
- `jax/`, `tensorflow/`, `mlx/`, `paddle/`, `cupy/`: the tensors of these libraries.
"""

from tensorkeep.arrays._arithmetic import Arithmetic, ComputingArrays, computes
from tensorkeep.arrays._attributes import dense_order
from tensorkeep.arrays._base import (
    DenseArrays,
    EncodedObject,
    ExportedArrays,
    Extent,
    FilledArrays,
    Library,
    ObjectCodec,
    SharedMemory,
    StreamedTensor,
    TensorToWrite,
    can_be_filled,
    prepares_exports,
)
from tensorkeep.arrays._codec import (
    convert_to,
    decode_object,
    encode_object,
    known_class,
    object_hint,
    plain_library,
    tensor_hint,
)
from tensorkeep.arrays._device_memory import (
    DeviceCopies,
    DeviceMemory,
    Move,
    Order,
    StagedArrays,
    Target,
    has_device_memory,
    order_of,
)
from tensorkeep.arrays._dlpack import any_tensor_to_write, exports_memory
from tensorkeep.arrays._fetching import DeviceFetches, Fetched, FetchingMemory, HostBuffer, Mark, OnDevice
from tensorkeep.arrays._framework import (
    ArrayT,
    CupyName,
    Framework,
    JaxName,
    MlxName,
    NumpyName,
    PaddleName,
    TensorflowName,
    TorchName,
)
from tensorkeep.arrays._pieces import pieces
from tensorkeep.arrays._registry import (
    DEFAULT_FRAMEWORK,
    LIBRARIES,
    adapter_for,
    codec_for,
    device_for,
    find_library,
    is_tensor,
    library_for,
    numpy_arithmetic,
    refuse_unused_device,
    tensor_to_write,
)

__all__ = [
    "DEFAULT_FRAMEWORK",
    "LIBRARIES",
    "Arithmetic",
    "ArrayT",
    "ComputingArrays",
    "CupyName",
    "DenseArrays",
    "DeviceCopies",
    "DeviceFetches",
    "DeviceMemory",
    "EncodedObject",
    "ExportedArrays",
    "Extent",
    "Fetched",
    "FetchingMemory",
    "FilledArrays",
    "Framework",
    "HostBuffer",
    "JaxName",
    "Library",
    "Mark",
    "MlxName",
    "Move",
    "NumpyName",
    "ObjectCodec",
    "OnDevice",
    "Order",
    "PaddleName",
    "SharedMemory",
    "StagedArrays",
    "StreamedTensor",
    "Target",
    "TensorToWrite",
    "TensorflowName",
    "TorchName",
    "adapter_for",
    "any_tensor_to_write",
    "can_be_filled",
    "codec_for",
    "computes",
    "convert_to",
    "decode_object",
    "dense_order",
    "device_for",
    "encode_object",
    "exports_memory",
    "find_library",
    "has_device_memory",
    "is_tensor",
    "known_class",
    "library_for",
    "numpy_arithmetic",
    "object_hint",
    "order_of",
    "pieces",
    "plain_library",
    "prepares_exports",
    "refuse_unused_device",
    "tensor_hint",
    "tensor_to_write",
]
