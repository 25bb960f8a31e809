"""torch tensors, on any device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tensorkeep.arrays._base import LARGEST_E4M3, EncodedObject, Extent, FindClass, TensorToWrite
from tensorkeep.arrays._memory import bytes_at
from tensorkeep.arrays._pieces import pieces
from tensorkeep.arrays.elements import aligned, elements_of, pack, within_numpys_limits
from tensorkeep.arrays.torch._attributes import put_torch_marks, torch_marks
from tensorkeep.arrays.torch._codec import PLAIN_CLASSES, put_torch_together, take_torch_apart
from tensorkeep.arrays.torch._composed import TORCH_CONSTANTS, compose, torch_device
from tensorkeep.arrays.torch._torchao import known_class
from tensorkeep.arrays.torch.devices import check_device
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import BY_NAME, BY_TORCH, DTYPES, FOREIGN_DTYPES, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError, UnsupportedError
from tensorkeep.limits import PACK_NBYTES

_Carrier = tuple[np.dtype[Any], torch.dtype | None]
"""The NumPy dtype under which torch takes the bytes, and what to view them as then, if anything else."""


def torch_dtype(dtype: DType) -> torch.dtype | None:
    """Return torch's dtype, or None where it has none."""
    found = getattr(torch, dtype.torch, None) if dtype.torch else None
    return found if isinstance(found, torch.dtype) else None


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
"""Those of dtypes whose bytes torch reads as they lie, with the mask of offsets at which it cannot.

None that the format has not: an entry of such a name is of a dtype that its file's reader did not check.
"""


_DTYPES = {torch_dtype(dtype): dtype for dtype in DTYPES if torch_dtype(dtype) is not None}
"""torch's dtype to its row in the dtype table, for those that the format has."""


class TorchAdapter:
    """torch."""

    name = "torch"
    plain_classes = PLAIN_CLASSES

    def __init__(self, device: Any = "cpu") -> None:
        self._device = None if device is None or str(device) == "cpu" else device
        self.is_on_host = self._device is None

    def views(self, buffer: Buffer, entries: Mapping[str, TensorEntry], base: int) -> dict[str, torch.Tensor]:
        """Make tensors over a buffer; see `ArrayAdapter.views`.

        Each goes through an array of its own, since tensors that are views of one torch tensor would share its
        version counter, and an in-place write to one would then fail the backward pass of another.
        """
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
            except (KeyError, ValueError, OverflowError):  # packed, unknown, or a shape that NumPy cannot hold
                pass
            tensors[name] = self._copied(name, entry, buffer, offset)
        return tensors

    def place(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Move tensors to the device; see `ArrayAdapter.place`."""
        if self._device is None:
            return tensors
        try:
            return {name: tensor.to(device=self._device) for name, tensor in tensors.items()}
        except (RuntimeError, AssertionError, TypeError) as error:
            check_device(self._device)
            raise error from None

    def _copied(self, name: str, entry: TensorEntry, buffer: Buffer, offset: int) -> torch.Tensor:
        if entry.dtype == "F4" and "F4" in _CARRIERS:
            halved = _halved(entry.shape)
            with within_numpys_limits(name, halved):
                packed = np.frombuffer(buffer, np.uint8, entry.nbytes, offset).reshape(halved).copy()
            return torch.from_numpy(packed).view(torch.float4_e2m1fn_x2)
        elements = elements_of(name, entry, buffer, offset)
        return self._on_cpu(np.array(elements, copy=True), BY_NAME[entry.dtype])

    def from_elements(self, elements: npt.NDArray[Any], dtype: DType) -> torch.Tensor:
        """Give elements their dtype and device; see `ArrayAdapter.from_elements`."""
        return self.place({"": self._on_cpu(elements, dtype)})[""]

    def _on_cpu(self, elements: npt.NDArray[Any], dtype: DType) -> torch.Tensor:
        carrier = _CARRIERS.get(dtype.name)
        if carrier is None:
            raise DtypeError(
                f"torch has no dtype for {dtype.name}", found=dtype.name, hint='Load it with framework="numpy"'
            )
        stored, viewed = carrier
        if dtype.is_packed:
            halved = _halved(elements.shape)
            elements = pack(elements.reshape(-1), dtype.bits).reshape(halved)
        if not elements.size:  # NumPy's strides would be 0
            return torch.empty(elements.shape, dtype=torch_dtype(dtype), device="cpu")
        tensor = torch.from_numpy(elements.view(stored))
        return tensor if viewed is None else tensor.view(viewed)

    def storage(self, data: npt.NDArray[np.uint8]) -> torch.UntypedStorage:
        """Make a storage over the bytes, or on the device; see `ArrayAdapter.storage`."""
        if not data.size:
            return torch.empty(0, dtype=torch.uint8, device=self._device or "cpu").untyped_storage()
        return self.place({"": torch.from_numpy(aligned(data))})[""].untyped_storage()

    def shared(
        self, storage: Any, dtype: DType, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> torch.Tensor:
        """Make a tensor over a storage; see `ArrayAdapter.shared`."""
        own = torch_dtype(dtype)
        if own is None:
            raise DtypeError(
                f"torch has no dtype for {dtype.name}", found=dtype.name, hint='Load it with framework="numpy"'
            )
        if dtype.is_packed:
            offset, shape = offset // 2, _halved(shape)
            strides = (*(stride // 2 for stride in strides[:-1]), 1)
        empty = torch.empty(0, dtype=own, device=storage.device)
        return empty.set_(storage, offset, shape, strides)

    def marked(self, tensor: torch.Tensor, *, is_conj: bool, is_neg: bool, requires_grad: bool) -> torch.Tensor:
        """Set what torch keeps beside the elements; see `ArrayAdapter.marked`."""
        tensor = tensor.conj() if is_conj else tensor
        tensor = torch._neg_view(tensor) if is_neg else tensor
        return tensor.requires_grad_() if requires_grad and _has_gradients(tensor) else tensor

    def without_data(self, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
        """Make a tensor on the device meta; see `ArrayAdapter.without_data`."""
        return torch.empty_strided(shape, strides, dtype=torch_dtype(dtype), device="meta")

    def composed(self, kind: str, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> torch.Tensor | None:
        """Make a sparse, quantized or nested tensor; see `ArrayAdapter.composed`."""
        return compose(kind, parts, settings)

    def attributes_of(self, tensor: torch.Tensor) -> dict[str, Any]:
        """Tell what torch keeps beside the elements; see `ArrayAdapter.attributes_of`."""
        return torch_marks(tensor)

    def with_attributes(self, tensor: torch.Tensor, marks: Mapping[str, Any]) -> torch.Tensor:
        """Restore what torch keeps beside the elements; see `ArrayAdapter.with_attributes`."""
        return put_torch_marks(tensor, marks)

    def encode_object(self, value: Any) -> EncodedObject | None:
        """Take apart what is data of torch; see `ArrayAdapter.encode_object`."""
        return take_torch_apart(value)

    def decode_object(
        self, kind: str, parts: Mapping[str, Any], settings: Mapping[str, Any], find_class: FindClass
    ) -> Any | None:
        """Put together what is data of torch; see `ArrayAdapter.decode_object`."""
        return put_torch_together(kind, parts, settings, find_class)

    def known_class(self, name: str) -> type | None:
        """Return a class of torchao; see `ArrayAdapter.known_class`."""
        return known_class(name)

    def labelled(self, kind: str, text: str) -> Any | None:
        """Return a device, or a constant of torch; see `ArrayAdapter.labelled`."""
        return torch_device(text) if kind == "device" else TORCH_CONSTANTS.get(text)

    def cast(self, tensor: torch.Tensor, dtype: DType) -> torch.Tensor:
        """Convert to another floating-point dtype; see `ArrayAdapter.cast`."""
        if dtype.bits < 32 and tensor.dtype == torch.float64:
            tensor = tensor.to(torch.float32)
        if dtype.name == "F8_E4M3":
            tensor = tensor.to(torch.float32).clamp(-LARGEST_E4M3, LARGEST_E4M3)
        return tensor.to(torch_dtype(dtype))

    def tensor_to_write(self, tensor: Any, name: str) -> TensorToWrite:
        """Describe a tensor for writing; see `ArrayAdapter.tensor_to_write`."""
        dtype = _DTYPES.get(tensor.dtype)
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
                hint="Save what it stands for, such as `.full_tensor()` of a DTensor or `.to_dense()`",
            )
        shape = tuple(tensor.shape)
        if dtype.is_packed:
            shape = (*shape[:-1], 2 * shape[-1]) if shape else shape
        nbytes = tensor.numel() * tensor.element_size()
        return TensorToWrite(
            dtype,
            shape,
            nbytes,
            lambda: _extent(tensor, is_packed=dtype.is_packed),
            lambda: _buffers(tensor),
            lambda start, stop: _memory(tensor, start, stop),
        )


def _has_gradients(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _obstacle(tensor: torch.Tensor) -> str | None:
    """Say why a tensor's bytes cannot be had, if they cannot."""
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
    """Return strides in single elements for those of torch's pairs; none where pairs are apart from each other."""
    if not shape or (shape[-1] > 1 and strides[-1] != 1):
        return ()
    return (*(2 * stride for stride in strides[:-1]), 1)


def _memory(tensor: torch.Tensor, start: int, stop: int) -> Iterator[Buffer]:
    """Give the bytes at addresses of the tensor's allocation; those of a device are copied piece by piece."""
    if tensor.device.type == "cpu":
        return bytes_at(start, stop, tensor)
    storage = tensor.untyped_storage()
    first = start - storage.data_ptr()
    last = stop - storage.data_ptr()
    if not 0 <= first <= last <= storage.nbytes():
        raise UnsupportedError(
            f"tensors on {tensor.device} share memory that is not of one storage", hint="Save a `.clone()` of them"
        )
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
    return (
        whole[begin : min(begin + PACK_NBYTES, last)].cpu().numpy().data for begin in range(first, last, PACK_NBYTES)
    )


def _halved(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that torch's two-in-one fp4 dtype has for a shape in elements."""
    if not shape or shape[-1] % 2:
        raise DtypeError(
            "torch holds fp4 in pairs",
            expected="an even number of elements in the last dimension",
            found=f"shape {list(shape)}",
            hint='Load it with framework="numpy"',
        )
    return (*shape[:-1], shape[-1] // 2)


def _buffers(tensor: torch.Tensor) -> Iterator[Buffer]:
    """Give the file's bytes of a tensor: its own memory, or copies of bounded size."""
    tensor = tensor.detach()
    if not tensor.numel():
        return
    if (
        tensor.device.type == "cpu"
        and tensor.is_contiguous()
        and np.little_endian
        and not (tensor.is_conj() or tensor.is_neg())
    ):
        yield from _bytes_of(tensor)
        return
    for index in pieces(tuple(tensor.shape), tensor.element_size(), PACK_NBYTES):
        for stored in _bytes_of(tensor[index].cpu().resolve_conj().resolve_neg().contiguous()):
            if np.little_endian:
                yield stored
            else:
                yield np.frombuffer(stored, f"u{tensor.element_size()}").byteswap().view(np.uint8).data


def _bytes_of(tensor: torch.Tensor) -> Iterator[Buffer]:
    """Give the memory of a contiguous tensor, which stays alive as long as the bytes are."""
    start = tensor.data_ptr()
    return bytes_at(start, start + tensor.numel() * tensor.element_size(), tensor)
