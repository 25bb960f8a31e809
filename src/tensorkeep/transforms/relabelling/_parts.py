"""The parts of a tensor in NVFP4: taken from any layout, given in any."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from tensorkeep.errors import RefusedError
from tensorkeep.formats.gguf import GGML_TYPES_BY_NAME, GgufRecord
from tensorkeep.quantized import QuantizedTensor
from tensorkeep.tensors import LazyTensor, LazyTensors, computed_tensor
from tensorkeep.transforms.relabelling._ggml_blocks import N_PER_BLOCK, data_of, scales_of, to_blocks
from tensorkeep.transforms.relabelling._names import NVFP4_LAYOUTS, SCALES_OF_ALL, PartNames

_N_PER_SCALE = 16
_GGUF = NVFP4_LAYOUTS["gguf"]
_TYPE = GGML_TYPES_BY_NAME["NVFP4"]


class Nvfp4Tensor(msgspec.Struct, frozen=True):
    """One tensor.

    Attributes:
        name: The name of its weight.
        shape: Its shape, in numbers.
        stored: Role to the name of the stored tensor.
    """

    name: str
    shape: tuple[int, ...]
    stored: Mapping[str, str]


def of_layout(quantized: QuantizedTensor) -> Nvfp4Tensor:
    """Return what was recognized from names."""
    return Nvfp4Tensor(quantized.name, quantized.shape, quantized.parts)


def in_ggml_blocks(tensors: LazyTensors, record: GgufRecord) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the tensors in ggml's blocks, of a GGUF file or converted from one, with their types and shapes."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, lazy in tensors.items():
        type_name, shape = (lazy.dtype, lazy.shape) if lazy.is_quantized else record.tensors.get(name, ("", ()))
        type_ = GGML_TYPES_BY_NAME.get(type_name)
        if type_ is None or not type_.is_quantized or not shape or shape[-1] % type_.n_per_block:
            continue
        if lazy.is_quantized or (lazy.dtype == "U8" and lazy.shape == type_.raw_shape(shape)):
            found[name] = (type_name, shape)
    return found


def of_blocks(tensors: LazyTensors, name: str, shape: tuple[int, ...]) -> Nvfp4Tensor:
    """Return a tensor of a GGUF file and the scales beside it."""
    beside = {role: _GGUF.name(role, name) for role in SCALES_OF_ALL}
    return Nvfp4Tensor(
        name, shape, {"data": name, **{role: scale for role, scale in beside.items() if scale in tensors}}
    )


def taken(tensors: LazyTensors, one: Nvfp4Tensor, old: PartNames) -> dict[str, LazyTensor]:
    """Return the numbers and the scales of blocks as most libraries have them: two tensors."""
    data = tensors[one.stored["data"]]
    if old is not _GGUF:
        return {"data": data, "scales": tensors[one.stored["scales"]]}
    blocks = data.raw() if data.is_quantized else data
    *rows, n = one.shape
    compute_scales = partial(scales_of, one.name)
    return {
        "data": _by_rows(data_of, (blocks,), "U8", (*rows, n // 2)),
        "scales": _by_rows(compute_scales, (blocks,), "F8_E4M3", (*rows, n // _N_PER_SCALE)),
    }


def given(one: Nvfp4Tensor, parts: dict[str, LazyTensor], new: PartNames) -> dict[str, LazyTensor]:
    """Return the numbers and the scales of blocks as a layout stores them."""
    if new is not _GGUF:
        return parts
    if one.shape[-1] % N_PER_BLOCK:
        raise RefusedError(
            f"the rows of tensor `{one.name}` are not whole blocks of GGUF",
            tensor=one.name,
            expected=f"a multiple of {N_PER_BLOCK} numbers",
            found=f"{one.shape[-1]}",
        )
    compute = partial(to_blocks, one.name)
    return {"data": _by_rows(compute, (parts["data"], parts["scales"]), "U8", _TYPE.raw_shape(one.shape))}


def _by_rows(compute: Any, inputs: tuple[LazyTensor, ...], dtype: str, shape: tuple[int, ...]) -> LazyTensor:
    return computed_tensor(
        inputs[0].name,
        compute,
        inputs,
        scope="rows",
        dtype=dtype,
        shape=shape,
        framework="numpy",
        in_threads=True,
    )
