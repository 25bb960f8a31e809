"""Dense torch tensors, on any device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import torch

from tensorkeep.arrays._base import LARGEST_E4M3, Extent, StreamedTensor, TensorToWrite
from tensorkeep.arrays._device_memory import Order
from tensorkeep.arrays._pieces import pieces
from tensorkeep.arrays.elements import aligned, elements_of, pack, within_numpys_limits
from tensorkeep.arrays.in_memory import TensorInMemory, bytes_at
from tensorkeep.arrays.torch._arithmetic import TorchArithmetic
from tensorkeep.arrays.torch._device_memory import TorchDeviceMemory, on_device
from tensorkeep.arrays.torch._dtypes import torch_dtype
from tensorkeep.arrays.torch.devices import NO_DEVICE, check_device
from tensorkeep.arrays.torch.streams import STREAMS, DeviceStream, current_stream
from tensorkeep.arrays.torch.to_host import PART_NBYTES, parts_on_host
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import BY_NAME, BY_TORCH, DTYPES, FOREIGN_DTYPES, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError, UnsupportedError
from tensorkeep.limits import PACK_NBYTES

_Carrier = tuple[np.dtype[Any], torch.dtype | None]
"""The NumPy dtype in which torch takes the bytes, and the dtype to view them as then, if it is another."""


def _carrier(dtype: DType) -> _Carrier | None:
    viewed = torch_dtype(dtype)
    if viewed is None:
        return None
    if dtype.is_in_numpy:
        return np.dtype(dtype.numpy), None
    return np.dtype(f"int{dtype.bits}" if dtype.bits > 8 else "uint8"), viewed


_CARRIERS = {dtype.name: carrier for dtype in (*DTYPES, *FOREIGN_DTYPES) if (carrier := _carrier(dtype))}
_CARRIERS_AS_STORED = {
    name: (stored, viewed, stored.itemsize - 1)
    for name, (stored, viewed) in _CARRIERS.items()
    if np.little_endian and name in BY_NAME and not BY_NAME[name].is_packed
}
"""Carriers of dtypes whose bytes torch reads as they are in a file, with the mask of misaligned offsets.

C32 and C128 are not among them: a safetensors file that names one was not checked for its size.
"""

_DTYPES = {torch_dtype(dtype): dtype for dtype in DTYPES if torch_dtype(dtype) is not None}
"""torch's dtype to its row in the dtype table, for those that the format has."""


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.dtype in _DTYPES and not tensor.is_meta and not tensor.is_nested


PLAIN_CLASSES: Final[dict[type, Callable[[Any], bool]]] = {torch.Tensor: _is_plain, torch.nn.Parameter: _is_plain}


class TorchArrays:
    """Dense torch tensors on one device: `DenseArrays` and `SharedMemory`."""

    plain_classes: Final[Mapping[type, Callable[[Any], bool]]] = PLAIN_CLASSES

    def __init__(self, device: Any = "cpu") -> None:
        self._device = None if device is None or str(device) == "cpu" else device
        self.is_on_host = self._device is None

    def views(self, buffer: Buffer, entries: Mapping[str, TensorEntry], base: int) -> dict[str, torch.Tensor]:
        """Make tensors over a buffer, without a copy if their elements are aligned."""
        # Each tensor gets a NumPy array, and so a storage, of its own: views of one torch tensor share its version
        # counter, so that an in-place write to one fails the backward pass of another.
        make = np.ndarray
        from_numpy = torch.from_numpy
        carriers = _CARRIERS_AS_STORED
        tensors: dict[str, torch.Tensor] = {}
        for name, entry in entries.items():
            start, stop = entry.data_offsets
            offset = base + start
            try:
                stored, viewed, misaligned = carriers[entry.dtype]
                if not offset & misaligned and start != stop:
                    tensor = from_numpy(make(entry.shape, stored, buffer, offset))
                    tensors[name] = tensor if viewed is None else tensor.view(viewed)
                    continue
            except (
                KeyError,
                ValueError,
                OverflowError,
            ):  # a packed or unknown dtype, a shape beyond NumPy
                pass
            tensors[name] = self._copied(name, entry, buffer, offset)
        return tensors

    def place(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Move tensors to the device."""
        if self._device is None:
            return tensors
        try:
            return {name: tensor.to(device=self._device) for name, tensor in tensors.items()}
        except NO_DEVICE as error:
            check_device(self._device)
            raise error from None

    def device_memory(self) -> TorchDeviceMemory | None:
        """Return the device's memory, if the device copies to it by itself."""
        device = check_device(self._device or "cpu")
        return TorchDeviceMemory(device) if device.type in STREAMS else None

    def order(self) -> Order:
        """Return the order of the calling thread's work on the device."""
        return current_stream(check_device(self._device or "cpu")).entered

    def arithmetic(self) -> TorchArithmetic:
        """Return the operations on the device for formulas."""
        return TorchArithmetic(check_device(self._device or "cpu"))

    def _copied(self, name: str, entry: TensorEntry, buffer: Buffer, offset: int) -> torch.Tensor:
        if entry.dtype == "F4" and "F4" in _CARRIERS:
            halved = _halved(entry.shape)
            with within_numpys_limits(name, halved):
                packed = np.frombuffer(buffer, np.uint8, entry.nbytes, offset).reshape(halved).copy()
            return torch.from_numpy(packed).view(torch.float4_e2m1fn_x2)
        elements = elements_of(name, entry, buffer, offset)
        return self._on_cpu(np.array(elements, copy=True), BY_NAME[entry.dtype])

    def from_elements(self, elements: npt.NDArray[Any], dtype: DType) -> torch.Tensor:
        """Give elements their dtype, on the device."""
        return self.place({"": self._on_cpu(elements, dtype)})[""]

    def _on_cpu(self, elements: npt.NDArray[Any], dtype: DType) -> torch.Tensor:
        carrier = _CARRIERS.get(dtype.name)
        if carrier is None:
            raise _no_dtype(dtype)
        stored, viewed = carrier
        if dtype.is_packed:
            halved = _halved(elements.shape)
            elements = pack(elements.reshape(-1), dtype.bits).reshape(halved)
        if not elements.size:  # NumPy's strides would be 0
            return torch.empty(elements.shape, dtype=torch_dtype(dtype), device="cpu")
        tensor = torch.from_numpy(elements.view(stored))
        return tensor if viewed is None else tensor.view(viewed)

    def storage(self, data: npt.NDArray[np.uint8] | torch.Tensor) -> torch.UntypedStorage:
        """Make a storage of bytes: over them on the CPU, a copy on any other device."""
        if isinstance(data, torch.Tensor):
            # A small one may be a part of memory that it has in common with others (`staging(own=False)`)
            is_whole = data.untyped_storage().nbytes() == data.nbytes
            return (data if is_whole else data.clone()).untyped_storage()
        if not data.size:
            return torch.empty(0, dtype=torch.uint8, device=self._device or "cpu").untyped_storage()
        return self.place({"": torch.from_numpy(aligned(data))})[""].untyped_storage()

    def view_of(
        self,
        storage: Any,
        dtype: DType,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        *,
        is_conj: bool = False,
        is_neg: bool = False,
    ) -> torch.Tensor:
        """Make a tensor over a storage; torch conjugates and negates when the elements are used."""
        own = torch_dtype(dtype)
        if own is None:
            raise _no_dtype(dtype)
        if dtype.is_packed:
            offset, shape = offset // 2, _halved(shape)
            strides = (*(stride // 2 for stride in strides[:-1]), 1)
        tensor = torch.empty(0, dtype=own, device=storage.device).set_(storage, offset, shape, strides)
        tensor = tensor.conj() if is_conj else tensor
        return torch._neg_view(tensor) if is_neg else tensor

    def has_dtype(self, dtype: DType) -> bool:
        """Say whether this version of torch has a dtype."""
        return dtype.name in _CARRIERS

    def memory_of(self, dtype: DType) -> Literal["shared", "copied", "converted"]:
        """Say whether a tensor shares the memory it is made of: all but F4."""
        return "copied" if dtype.is_packed else "shared"

    def cast(self, tensor: torch.Tensor, dtype: DType) -> torch.Tensor:
        """Convert to another floating-point dtype."""
        if dtype.bits < 32 and tensor.dtype == torch.float64:
            tensor = tensor.to(torch.float32)
        if dtype.name == "F8_E4M3":
            tensor = tensor.to(torch.float32).clamp(-LARGEST_E4M3, LARGEST_E4M3)
        return tensor.to(torch_dtype(dtype))

    def tensor_to_write(self, tensor: Any, name: str) -> TensorToWrite:
        """Describe a tensor for writing."""
        dtype = _DTYPES.get(tensor.dtype)
        if dtype is not None and type(tensor) in PLAIN_CLASSES and _is_as_in_file(tensor):
            return TensorInMemory(dtype, _shape(tensor, dtype), tensor.nbytes, tensor.data_ptr(), tensor)
        if dtype is None:
            raise DtypeError(
                f"tensor `{name}` has a dtype that the format cannot hold",
                tensor=name,
                expected="one of " + ", ".join(BY_TORCH),
                found=str(tensor.dtype),
            )
        obstacle = _obstacle(tensor)
        if obstacle is not None:
            raise UnsupportedError(
                f"tensor `{name}` has no bytes of its own here",
                tensor=name,
                expected="a dense tensor with data",
                found=obstacle,
                hint="Save its full value, such as `.full_tensor()` of a DTensor or `.to_dense()`",
            )
        return _streamed(tensor, dtype)


def _is_as_in_file(tensor: torch.Tensor) -> bool:
    """Say whether a tensor has memory on the CPU that is what the file will hold."""
    return (
        tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and np.little_endian
        and not (tensor.is_conj() or tensor.is_neg())
        and tensor.numel() > 0
    )


def _shape(tensor: torch.Tensor, dtype: DType) -> tuple[int, ...]:
    """Return the shape in elements; torch counts pairs of F4."""
    shape = tuple(tensor.shape)
    return (*shape[:-1], 2 * shape[-1]) if dtype.is_packed and shape else shape


def _streamed(tensor: torch.Tensor, dtype: DType) -> StreamedTensor:
    caller = current_stream(tensor.device)
    return StreamedTensor(
        dtype,
        _shape(tensor, dtype),
        tensor.numel() * tensor.element_size(),
        lambda: _buffers(tensor, caller),
        lambda: _extent(tensor, is_packed=dtype.is_packed),
        lambda start, stop: _memory(tensor, start, stop, caller),
        on_device=on_device(tensor, caller),
    )


def _no_dtype(dtype: DType) -> DtypeError:
    return DtypeError(f"torch has no dtype for {dtype.name}", found=dtype.name, hint='Load it with framework="numpy"')


def _obstacle(tensor: torch.Tensor) -> str | None:
    """Say why a tensor has no bytes that can be read; None if it has."""
    if tensor.layout != torch.strided:
        return f"layout {tensor.layout}"
    if tensor.device.type == "meta":
        return "device meta, which has no data"
    if type(tensor) is not torch.Tensor and hasattr(tensor, "__tensor_flatten__"):
        return f"{type(tensor).__name__}, a wrapper of other tensors"
    return None


def _extent(tensor: torch.Tensor, *, is_packed: bool) -> Extent | None:
    if not tensor.numel():
        return None
    start = tensor.data_ptr()
    if not start:  # a device without addresses
        return None
    shape, strides = tuple(tensor.shape), tensor.stride()
    if tensor.is_contiguous():
        reach = tensor.numel()
    else:
        reach = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    return Extent(
        "cpu" if tensor.is_cpu else str(tensor.device),
        start,
        start + reach * tensor.element_size(),
        _unpaired(shape, strides) if is_packed else strides,
        tensor.is_conj(),
        tensor.is_neg(),
    )


def _unpaired(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return strides in elements for strides in torch's pairs; none if the pairs of a row are not adjacent."""
    if not shape or (shape[-1] > 1 and strides[-1] != 1):
        return ()
    return (*(2 * stride for stride in strides[:-1]), 1)


def _memory(tensor: torch.Tensor, start: int, stop: int, stream: DeviceStream) -> Iterator[Buffer]:
    """Give the bytes at addresses of the tensor's allocation, copied piece by piece from a device."""
    if tensor.device.type == "cpu":
        return bytes_at(start, stop, tensor)
    storage = tensor.untyped_storage()
    first = start - storage.data_ptr()
    last = stop - storage.data_ptr()
    if not 0 <= first <= last <= storage.nbytes():
        raise UnsupportedError(
            f"tensors on {tensor.device} share memory that is not one storage", hint="Save a `.clone()` of them"
        )
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
    slices = (slice(begin, min(begin + PART_NBYTES, last)) for begin in range(first, last, PART_NBYTES))
    return (part.numpy().data for part in parts_on_host(whole, slices, stream))


def _halved(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in torch's fp4 dtype, which holds two elements in one, for a shape in elements."""
    if not shape or shape[-1] % 2:
        raise DtypeError(
            "torch holds fp4 in pairs",
            expected="an even number of elements in the last dimension",
            found=f"shape {list(shape)}",
            hint='Load it with framework="numpy"',
        )
    return (*shape[:-1], shape[-1] // 2)


def _buffers(tensor: torch.Tensor, stream: DeviceStream) -> Iterator[Buffer]:
    """Give the file's bytes: the tensor's own memory, or copies of bounded size."""
    tensor = tensor.detach()
    if not tensor.numel():
        return
    if _is_as_in_file(tensor):
        yield from _bytes_of(tensor)
        return
    piece_nbytes = PACK_NBYTES if tensor.is_cpu else PART_NBYTES
    indices = pieces(tuple(tensor.shape), tensor.element_size(), piece_nbytes)
    for part in parts_on_host(tensor, indices, stream):
        for stored in _bytes_of(part.resolve_conj().resolve_neg().contiguous()):
            if np.little_endian:
                yield stored
            else:
                yield np.frombuffer(stored, f"u{tensor.element_size()}").byteswap().view(np.uint8).data


def _bytes_of(tensor: torch.Tensor) -> Iterator[Buffer]:
    """Give the memory of a contiguous tensor, which lives as long as the bytes are used."""
    start = tensor.data_ptr()
    return bytes_at(start, start + tensor.numel() * tensor.element_size(), tensor)
