"""Quantized tensors of torchao: they come back exactly, and no part of one is believed.

Made by torchao itself where it can on a CPU. Int4Tensor and Int4PlainInt32Tensor are made by their constructors: what
quantizes to them needs other devices or libraries, but what they hold is plain.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from tensorkeep.arrays import EncodedObject, decode_object, encode_object, known_class
from tensorkeep.errors import FormatError
from tests.support.arrays.apart import put, taken

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torchao.quantization as ao
    from torchao.float8.inference import Float8MMConfig
    from torchao.optim import subclass_4bit, subclass_8bit, subclass_fp8
    from torchao.quantization.quantize_.workflows.float8.float8_tensor import QuantizeTensorToFloat8Kwargs
    from torchao.quantization.quantize_.workflows.nf4.nf4_tensor import to_nf4


def weight(config: Any) -> Any:
    torch.manual_seed(1)
    model = torch.nn.Linear(64, 32, dtype=torch.bfloat16)
    ao.quantize_(model, config)
    return model.weight


def group_quantized(n_per_number: int, dtype: torch.dtype, zero_dtype: torch.dtype) -> tuple[Any, ...]:
    packed = torch.randint(0, 100, (32, 64 // n_per_number)).to(dtype)
    return packed, torch.rand(2, 32, dtype=torch.bfloat16), torch.ones(2, 32, dtype=zero_dtype), [1, 32], (32, 64)


def made() -> dict[str, Any]:
    torch.manual_seed(2)
    high = torch.randn(32, 64)
    kwargs = QuantizeTensorToFloat8Kwargs(mm_config=Float8MMConfig(use_fast_accum=True))
    return {
        "int8": weight(ao.Int8WeightOnlyConfig(version=2)),
        "int8 dynamic": weight(ao.Int8DynamicActivationInt8WeightConfig(version=2)),
        "float8": weight(ao.Float8WeightOnlyConfig()),
        "float8 dynamic": ao.Float8Tensor.from_hp(high, act_quant_kwargs=kwargs, mm_config=kwargs.mm_config),
        "float8 per tensor": ao.Float8Tensor.from_hp(high, granularity=ao.PerTensor()),
        "intx": weight(ao.IntxWeightOnlyConfig(weight_dtype=torch.int4)),
        "intx groups": weight(ao.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4)),
        "int4": ao.Int4Tensor(*group_quantized(2, torch.int8, torch.bfloat16)),
        "int4 in int32": ao.Int4PlainInt32Tensor(*group_quantized(8, torch.int32, torch.int8)),
        "nf4": to_nf4(torch.randn(256, 256)),
        "optimizer, 8 bits": subclass_8bit.OptimState8bit.zeros((4, 256)),
        "optimizer, 4 bits": subclass_4bit.OptimState4bit.zeros((4, 256)),
        "optimizer, fp8": subclass_fp8.OptimStateFp8.zeros((4, 256)),
    }


TENSORS = made()
EACH = pytest.mark.parametrize("name", TENSORS)


def plain(context: Any) -> Any:
    """Return plain data that can be compared: dataclasses of torchao compare by their fields."""
    return {key: repr(value) for key, value in context.items()} if type(context) is dict else repr(context)


@EACH
def test_a_tensor_comes_back(name: str) -> None:
    tensor = TENSORS[name]

    loaded = put(taken(tensor))

    assert type(loaded) is type(tensor)
    assert (loaded.shape, loaded.dtype, loaded.stride()) == (tensor.shape, tensor.dtype, tensor.stride())
    assert isinstance(loaded, torch.nn.Parameter) == isinstance(tensor, torch.nn.Parameter)
    names, context = tensor.__tensor_flatten__()
    assert loaded.__tensor_flatten__()[0] == names
    assert plain(loaded.__tensor_flatten__()[1]) == plain(context)
    for part in names:
        assert torch.equal(getattr(loaded, part).double(), getattr(tensor, part).double())


@pytest.mark.parametrize("name", ["int8", "int8 dynamic", "float8", "intx"])
def test_a_layer_computes_the_same(name: str) -> None:
    x = torch.randn(5, 64, dtype=torch.bfloat16)

    assert torch.equal(
        torch.nn.functional.linear(x, put(taken(TENSORS[name]))), torch.nn.functional.linear(x, TENSORS[name])
    )


@EACH
def test_classes_of_the_registry_are_known_wherever_they_are_kept(name: str) -> None:
    kind = type(TENSORS[name])

    assert known_class(f"{kind.__module__}:{kind.__qualname__}") is kind
    assert known_class(f"torchao.somewhere.else:{kind.__qualname__}") is kind
    assert known_class(f"torchaos.evil:{kind.__qualname__}") is None
    assert known_class(f"os:{kind.__qualname__}") is None


@pytest.mark.parametrize("name", ["torchao.quantization:quantize_", "torchao.utils:os", "torchao", "torchao.x:"])
def test_nothing_else_of_torchao_is_known(name: str) -> None:
    assert known_class(name) is None


@pytest.mark.parametrize("name", ["Float8MMConfig", "MappingType", "PerRow", "KernelPreference"])
def test_plain_data_beside_the_parts_is_known(name: str) -> None:
    assert known_class(f"torchao.float8.inference:{name}").__name__ == name  # type: ignore[union-attr]


def changed(name: str) -> list[tuple[str, EncodedObject]]:
    """Return a tensor with one part or setting spoilt, in every way that may matter to who reads it."""
    honest = encode_object(TENSORS[name])
    assert honest is not None
    spoilt: list[tuple[str, EncodedObject]] = []
    for part, tensor in honest.parts.items():
        others = {
            "missing": None,
            "one dimension more": tensor[None],
            "no elements": tensor.new_empty((0,)),
            "of a wrong type": tensor.to(torch.complex64),
            "a list": [1, 2],
        }
        if tensor.ndim:
            others["longer"] = torch.cat([tensor.view(torch.uint8)] * 2).view(tensor.dtype)
        for what, other in others.items():
            parts = {key: value for key, value in honest.parts.items() if key != part or other is not None}
            spoilt.append((f"{part} {what}", with_(honest, parts | ({} if other is None else {part: other}), {})))
    settings = [{"shape": shape, "strides": (1, 1)} for shape in ((2**62,), (32, 65), (-1, 64), "text", None)]
    settings += [{"context": context} for context in (5, {}, [])]
    return spoilt + [(str(setting), with_(honest, honest.parts, setting)) for setting in settings]


def with_(honest: EncodedObject, parts: dict[str, Any], settings: dict[str, Any]) -> EncodedObject:
    return EncodedObject(honest.library, honest.kind, parts, honest.settings | settings)


ANOTHER_TENSOR = {
    "int8": ["zero_point missing"],
    "int8 dynamic": ["zero_point missing"],
    "float8 per tensor": ["scale one dimension more", "scale longer"],
    "optimizer, 8 bits": ["scale longer"],
    "optimizer, 4 bits": ["scale longer"],
    "optimizer, fp8": ["scale longer", "{'context': {}}", "{'context': []}"],
}
"""What makes another tensor that is in order: a symmetric one, other blocks, another dtype."""


@EACH
def test_a_spoilt_tensor_gives_our_error(name: str) -> None:
    believed = []
    for what, composed in changed(name):
        try:
            decode_object(composed, find_class=known_class)
        except FormatError:
            continue
        believed.append(what)

    assert believed == ANOTHER_TENSOR.get(name, [])
