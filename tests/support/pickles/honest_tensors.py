"""Tensors that people save: of every dtype and layout that torch can save, views, and what stands beside them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Scaled(torch.Tensor):
    """A subclass without anything of its own."""


def _with_attributes() -> nn.Parameter:
    parameter = nn.Parameter(torch.arange(3.0))
    parameter.tag, parameter.other = "mine", torch.arange(2)
    return parameter


def _tensor_with_attributes() -> torch.Tensor:
    tensor = torch.arange(3.0)
    tensor.tag, tensor.other = "mine", torch.arange(2)
    return tensor


def _subclass_with_attributes() -> torch.Tensor:
    tensor = torch.arange(3.0).as_subclass(Scaled)
    tensor.scale = torch.tensor(2.0)
    return tensor


def _with_hooks() -> torch.Tensor:
    tensor = torch.arange(3.0, requires_grad=True)
    tensor.grad = torch.ones(3)
    return tensor


def _overlapping() -> dict[str, Any]:
    base = torch.arange(24.0)
    return {
        "all": base,
        "rows": base.view(4, 6)[1:3],
        "column": base.view(4, 6)[:, 2],
        "again": base,
        "end": base[20:],
    }


def _one_storage_many_dtypes() -> dict[str, Any]:
    base = torch.arange(16, dtype=torch.int16)
    return {"whole": base, "part": base[3:9], "windows": base.unfold(0, 4, 2)}


def _filled(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Return a tensor of every dtype with bytes that are all different."""
    n_bytes = math.prod(shape) * dtype.itemsize
    raw = (torch.arange(n_bytes, dtype=torch.int64) * 37 % 251).to(torch.uint8)
    raw = raw % 2 if dtype == torch.bool else raw
    return raw.view(dtype).reshape(shape) if n_bytes else torch.empty(shape, dtype=dtype)


DTYPES = (
    *(
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.complex32,
        torch.complex64,
        torch.complex128,
    ),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
    *(torch.bool, torch.float4_e2m1fn_x2, torch.bits8, torch.bits16),
)
_SPECIAL = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, 3.4e38])
_IMAGE = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).view(2, 3, 4, 5)
_DENSE = torch.tensor([[0.0, 1, 0, 2], [3, 0, 0, 0], [0, 0, 4, 0], [5, 0, 0, 6]])
_COMPLEX = torch.view_as_complex(torch.arange(8.0).view(4, 2))


def _quantized_per_channel(dtype: torch.dtype, axis: int = 0) -> torch.Tensor:
    scales, zeros = torch.tensor([0.1, 0.5, 2.0]).double(), torch.tensor([1, 0, 3])
    return torch.quantize_per_channel(torch.arange(9.0).view(3, 3), scales, zeros, axis, dtype)


def _float_qparams() -> torch.Tensor:
    scales, zeros = torch.tensor([0.1, 0.5, 2.0]), torch.tensor([0.5, 1.0, 0.0])
    return torch.quantize_per_channel(torch.arange(9.0).view(3, 3), scales, zeros, 0, torch.quint8)


def _jagged(**settings: Any) -> torch.Tensor:
    return torch.nested.nested_tensor(
        [torch.ones(2, 3), torch.arange(12.0).view(4, 3)], layout=torch.jagged, **settings
    )


def _jagged_with_lengths() -> torch.Tensor:
    return torch.nested.nested_tensor_from_jagged(
        torch.arange(20.0).view(10, 2), torch.tensor([0, 4, 7, 10]), torch.tensor([2, 3, 1])
    )


TENSORS: dict[str, Callable[[], Any]] = {
    **{f"matrix of {dtype}": functools.partial(_filled, dtype, (3, 4)) for dtype in DTYPES},
    **{f"nothing of {dtype}": functools.partial(_filled, dtype, (0, 4)) for dtype in DTYPES},
    **{f"one {dtype}": functools.partial(_filled, dtype, ()) for dtype in DTYPES if dtype != torch.float4_e2m1fn_x2},
    "special numbers": lambda: {dtype: _SPECIAL.to(dtype) for dtype in DTYPES[:4]},
    "shapes with 0": lambda: [torch.empty(0), torch.empty(3, 0, 2), torch.empty(0, 0), torch.ones(4)[2:2]],
    "transposed": lambda: _IMAGE.transpose(1, 3),
    "channels last": lambda: _IMAGE.to(memory_format=torch.channels_last),
    "channels last 3d": lambda: _IMAGE[None].contiguous(memory_format=torch.channels_last_3d),
    "expanded": lambda: torch.arange(3.0)[:, None].expand(3, 5),
    "expanded from one": lambda: torch.tensor(2.5).expand(2, 3),
    "strided": lambda: _IMAGE[1:, ::2, 1::3],
    "overlapping windows": lambda: torch.arange(10.0).unfold(0, 4, 2),
    "diagonal": lambda: torch.arange(25.0).view(5, 5).diagonal(),
    "storage larger than view": lambda: torch.arange(100.0)[10:20],
    "shared memory": _overlapping,
    "shared memory of int16": _one_storage_many_dtypes,
    "one tensor twice": lambda: [*[torch.arange(3.0)] * 2],
    "conjugate": lambda: _COMPLEX.conj(),
    "conjugate with gradients": lambda: _COMPLEX.clone().requires_grad_().conj().detach().requires_grad_(),
    "negative view": lambda: torch._neg_view(torch.arange(4.0)),
    "conjugate's imaginary part": lambda: _COMPLEX.conj().imag,
    "real part": lambda: _COMPLEX.real,
    "complex transposed conjugate": lambda: _COMPLEX.view(2, 2).mH,
    "requires gradients": lambda: torch.ones(2, requires_grad=True),
    "with a gradient": _with_hooks,
    "parameter": lambda: nn.Parameter(torch.arange(4.0)),
    "frozen parameter": lambda: nn.Parameter(torch.arange(4), requires_grad=False),
    "parameter with attributes": _with_attributes,
    "tensor with attributes": _tensor_with_attributes,
    "buffer": lambda: nn.Buffer(torch.arange(3.0)),
    "subclass": lambda: torch.arange(3.0).as_subclass(Scaled),
    "subclass with attributes": _subclass_with_attributes,
    "parameter of a subclass": lambda: nn.Parameter(torch.arange(3.0).as_subclass(Scaled)),
    "meta": lambda: torch.empty(3, 4, device="meta"),
    "meta strided": lambda: torch.empty(3, 4, device="meta", dtype=torch.bfloat16).t(),
    "meta parameter": lambda: nn.Parameter(torch.empty(3, device="meta")),
    "coo": lambda: _DENSE.to_sparse(),
    "coo not coalesced": lambda: torch.sparse_coo_tensor([[0, 0, 1]], [1.0, 2.0, 3.0], (3,)),
    "coo hybrid": lambda: torch.sparse_coo_tensor([[0, 2]], torch.arange(6.0).view(2, 3), (4, 3)),
    "coo of nothing": lambda: torch.sparse_coo_tensor(size=(2, 3)),
    "coo with gradients": lambda: _DENSE.to_sparse().requires_grad_(),
    "coo parameter": lambda: nn.Parameter(_DENSE.to_sparse()),
    "coo of complex": lambda: _DENSE.to(torch.complex64).to_sparse(),
    "csr": lambda: _DENSE.to_sparse_csr(),
    "csc": lambda: _DENSE.to_sparse_csc(),
    "bsr": lambda: _DENSE.to_sparse_bsr((2, 2)),
    "bsc": lambda: _DENSE.to_sparse_bsc((2, 2)),
    "csr hybrid": lambda: _DENSE[..., None].expand(4, 4, 2).to_sparse_csr(dense_dim=1),
    "csr batched": lambda: torch.stack([_DENSE, _DENSE]).to_sparse_csr(),
    "csr with int32 indices": lambda: torch.sparse_csr_tensor(
        torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([1, 0], dtype=torch.int32), torch.ones(2), (2, 2)
    ),
    "quantized qint8": lambda: torch.quantize_per_tensor(torch.arange(6.0).view(2, 3), 0.5, 2, torch.qint8),
    "quantized quint8": lambda: torch.quantize_per_tensor(torch.arange(6.0), 0.1, 10, torch.quint8),
    "quantized qint32": lambda: torch.quantize_per_tensor(torch.arange(6.0), 0.1, 0, torch.qint32),
    "quantized transposed": lambda: torch.quantize_per_tensor(torch.arange(6.0).view(2, 3), 0.5, 2, torch.qint8).t(),
    "quantized per channel": lambda: _quantized_per_channel(torch.qint8),
    "quantized per last channel": lambda: _quantized_per_channel(torch.quint8, 1),
    "quantized with float parameters": _float_qparams,
    "quantized and empty": lambda: torch.quantize_per_tensor(torch.empty(0, 3), 0.5, 2, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.arange(4.0).view(4, 1)]),
    "nested of one": lambda: torch.nested.nested_tensor([torch.arange(3.0)]),
    "nested transposed": lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(4, 3)]).transpose(1, 2),
    "jagged": _jagged,
    "jagged of bfloat16": lambda: _jagged(dtype=torch.bfloat16),
    "jagged with gradients": lambda: _jagged(requires_grad=True),
    "jagged with lengths": _jagged_with_lengths,
    "jagged transposed": lambda: _jagged().transpose(1, 2),
    "untyped storage": lambda: torch.arange(4.0).untyped_storage(),
    "typed storage": lambda: torch.arange(4.0).storage(),
    "storages in a list": lambda: [torch.arange(4.0).untyped_storage(), torch.arange(3).storage()],
    "tensor beside its storage": lambda: (lambda t: {"storage": t.storage(), "tensor": t[2:]})(torch.ones(4)),
    "list of tensors": lambda: [torch.ones(1), [torch.zeros(2), (torch.ones(3),)]],
    "deep": lambda: functools.reduce(lambda inner, place: {f"l{place}": inner}, range(60), torch.ones(1)),
}
"""What it is, to what makes it; what torch gives back for it is nothing but tensors and containers."""

_NEW_DTYPES = [dtype for dtype in DTYPES if str(dtype).startswith(("torch.float8", "torch.float4", "torch.bits"))]
_NEW_DTYPES += [torch.complex32, torch.uint16, torch.uint32, torch.uint64]
NOT_IN_LEGACY = frozenset({
    *(f"{what} {dtype}" for dtype in _NEW_DTYPES for what in ("matrix of", "nothing of", "one")),
    *("untyped storage", "storages in a list"),
})
"""What `torch.save` itself cannot write so: what has no class of storages of its own."""
