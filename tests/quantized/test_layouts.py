"""Layouts recognized from headers and configurations, and everything that is wrong with them, without any file."""

from __future__ import annotations

import json
import time
from math import prod
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.dtypes import BY_NAME
from tensorkeep.errors import DtypeError, FormatError, LimitError, UnsupportedError
from tensorkeep.quantized import Layouts, dequantize, layouts, layouts_from
from tensorkeep.quantized._patterns import Patterns
from tensorkeep.quantized._record import Stored
from tensorkeep.tensors import TensorView

Shapes = dict[str, tuple[str, list[int]]]
GPTQ: Shapes = {
    "a.qweight": ("I32", [16, 64]),
    "a.qzeros": ("I32", [4, 8]),
    "a.scales": ("F16", [4, 64]),
    "a.g_idx": ("I32", [128]),
}
UNEQUAL: Shapes = {"a.qweight": ("I32", [20, 64]), "a.qzeros": ("I32", [3, 8]), "a.scales": ("F16", [3, 64])}
"""GPTQ with 160 columns in three groups, which may be of 54 or of 64."""

AWQ: Shapes = {"a.qweight": ("I32", [128, 8]), "a.qzeros": ("F32", [4, 8]), "a.scales": ("F16", [4, 64])}
AWQ_SOUND = AWQ | {"a.qzeros": ("I32", [4, 8])}
NVFP4: Shapes = {
    "a.weight": ("U8", [8, 16]),
    "a.weight_scale": ("F8_E4M3", [8, 2]),
    "a.weight_scale_2": ("F32", []),
}
CT_NVFP4: Shapes = {
    "a.weight_packed": ("U8", [8, 16]),
    "a.weight_scale": ("F8_E4M3", [8, 2]),
    "a.weight_global_scale": ("F32", [1]),
}
THREE_HALVES: Shapes = {"a.qweight": ("I32", [24, 64]), "a.qzeros": ("I32", [2, 8]), "a.scales": ("F16", [2, 64])}
PACKED: Shapes = {"a.weight_packed": ("I32", [8, 4]), "a.weight_scale": ("F16", [8, 2])}
FP8: Shapes = {"a.weight": ("F8_E4M3", [256, 384]), "a.weight_scale_inv": ("F32", [2, 3])}
ODD: Shapes = {"a.weight": ("F8_E4M3", [960, 256]), "a.weight_scale": ("F32", [8, 2])}
MXFP4: Shapes = {"e_blocks": ("U8", [2, 8, 4, 16]), "e_scales": ("U8", [2, 8, 4])}
GROUP = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 16, "strategy": "group"}}

GROUPED = {"quant_method": "compressed-tensors", "config_groups": {"g": GROUP}}


def opened(shapes: Shapes) -> TensorView:
    """Return lazy tensors of zeros."""
    return tensorkeep.open(bytes_of(shapes)).select("*")


def bytes_of(shapes: Shapes) -> bytes:
    header, data = {}, b""
    for name, (dtype, shape) in shapes.items():
        nbytes = BY_NAME[dtype].nbytes(prod(shape))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + nbytes]}
        data += bytes(nbytes)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def of(shapes: Shapes, **quantization: Any) -> Layouts:
    return layouts(opened(shapes), {"quantization_config": quantization} if quantization else {})


def changed(shapes: Shapes, **changes: Any) -> Shapes:
    """Return shapes with others, by the last part of names; None removes a tensor."""
    ends = {name: name.partition(".")[2] or name for name in shapes}
    kept = {name: changes.get(ends[name].replace(".", "_"), one) for name, one in shapes.items()}
    return {name: one for name, one in kept.items() if one is not None}


@pytest.mark.parametrize(
    ("shapes", "config", "shape", "scheme"),
    [
        (GPTQ, {}, (64, 128), "int4, groups of 32, zero points, act order"),
        (changed(GPTQ, g_idx=None), {"bits": 4}, (64, 128), "int4, groups of 32, zero points"),
        (NVFP4, {}, (8, 32), "e2m1, groups of 16"),
        (CT_NVFP4, {}, (8, 32), "e2m1, groups of 16"),
        (
            PACKED,
            {"quant_method": "compressed-tensors", "config_groups": {"g": GROUP}},
            (8, 32),
            "int4, groups of 16",
        ),
        (FP8, {}, (256, 384), "e4m3, blocks of 128x128"),
        (changed(FP8, weight=("F8_E4M3", [250, 300])), {}, (250, 300), "e4m3, blocks of 128x128"),
        (ODD, {"quant_method": "fp8", "weight_block_size": [128, 128]}, (960, 256), "e4m3, blocks of 128x128"),
        (MXFP4, {}, (2, 128, 8), "e2m1, blocks of 32"),
        ({"a.weight": ("I8", [4, 6]), "a.SCB": ("F32", [4])}, {}, (4, 6), "int8, a scale per row"),
        ({"a.weight": ("F8_E4M3", [4, 6]), "a.weight_scale": ("F32", [])}, {}, (4, 6), "e4m3, one scale"),
        ({"a.weight": ("F8_E4M3", [4, 6]), "a.scale_weight": ("F32", [])}, {}, (4, 6), "e4m3, one scale"),
    ],
)
def test_shapes_and_schemes(shapes: Shapes, config: dict[str, Any], shape: tuple[int, ...], scheme: str) -> None:
    found = of(shapes, **config)

    (tensor,) = found.tensors.values()
    assert (tensor.shape, tensor.scheme) == (shape, scheme)
    assert found.findings == ()


@pytest.mark.parametrize(
    ("shapes", "config", "kind", "message"),
    [
        (changed(GPTQ, scales=None), {}, "missing", "tensor `a.weight` has no scales"),
        (
            changed(NVFP4, weight_scale_2=None),
            {"quant_method": "modelopt", "quant_algo": "NVFP4"},
            "missing",
            "whole",
        ),
        (changed(CT_NVFP4, weight_global_scale=None), {}, "missing", "has no scale of the whole"),
        (changed(CT_NVFP4, weight_scale=None), {}, "missing", "has no scales of its blocks"),
        (changed(MXFP4, e_scales=None), {}, "missing", "has no scales"),
        (changed(FP8, weight_scale_inv=None), {"quant_method": "fp8"}, "missing", "has no scales"),
        (changed(FP8, weight=None), {}, "missing", "is a part of a tensor that is not there"),
        (changed(GPTQ, scales=("F16", [4, 63])), {}, "contradiction", "does not fit"),
        (changed(GPTQ, g_idx=("I32", [127])), {}, "contradiction", "does not fit `a.g_idx`"),
        (changed(GPTQ, g_idx=("F32", [128])), {}, "contradiction", "in another dtype in `a.g_idx`"),
        (changed(GPTQ, g_idx=("BOOL", [128])), {}, "contradiction", "in another dtype in `a.g_idx`"),
        (changed(GPTQ, qzeros=("F32", [4, 8])), {}, "contradiction", "in another dtype in `a.qzeros`"),
        (GPTQ, {"quant_method": "gptq", "bits": 5}, "contradiction", "no possible number of bits"),
        (changed(GPTQ, scales=("I32", [4, 64])), {}, "contradiction", "has scales in another dtype in `a.scales`"),
        (changed(AWQ_SOUND, scales=("BOOL", [4, 64])), {}, "contradiction", "scales in another dtype in `a.scales`"),
        (
            changed(PACKED, weight_scale=("I8", [8, 2])),
            GROUPED,
            "contradiction",
            "in another dtype in `a.weight_scale`",
        ),
        (changed(NVFP4, weight_scale_2=("I64", [])), {}, "contradiction", "in another dtype in `a.weight_scale_2`"),
        (changed(CT_NVFP4, weight_global_scale=("BOOL", [1])), {}, "contradiction", "`a.weight_global_scale`"),
        (changed(FP8, weight_scale_inv=("I32", [2, 3])), {}, "contradiction", "dtype in `a.weight_scale_inv`"),
        (changed(FP8, weight_scale_inv=("U8", [2, 3])), {}, "contradiction", "dtype in `a.weight_scale_inv`"),
        (UNEQUAL, {"bits": 4}, "missing", "does not say how many columns are in a group"),
        (THREE_HALVES, {"bits": 4}, "missing", "does not say how many columns are in a group"),
        (ODD, {}, "missing", "does not say how large its blocks are"),
        (AWQ, {}, "contradiction", "in another dtype in `a.qzeros`"),
        (changed(NVFP4, weight_scale=("F8_E4M3", [8, 3])), {}, "contradiction", "scales that do not fit its shape"),
        (changed(FP8, weight_scale_inv=("F32", [7, 5])), {}, "contradiction", "scales that do not fit its shape"),
        (changed(PACKED, weight_scale=("F16", [8, 0])), {}, "contradiction", "no possible shape"),
        (NVFP4 | {"a.weight_global_scale": ("F32", [1])}, {}, "reciprocal", "a scale of all and its reciprocal"),
        (FP8 | {"a.weight_scale": ("F32", [2, 3])}, {}, "reciprocal", "a scale and its reciprocal"),
        (GPTQ, {"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, "unsupported", "Marlin"),
        (PACKED | {"a.scale_packed": ("F16", [1, 1]), "a.meta": ("I32", [1])}, {}, "unsupported", "Marlin 2:4"),
        (NVFP4 | {"a.pre_quant_scale": ("F32", [32])}, {}, "unsupported", "inputs that are scaled first"),
    ],
)
def test_what_is_wrong(shapes: Shapes, config: dict[str, Any], kind: str, message: str) -> None:
    found = of(shapes, **config)

    assert [finding.kind for finding in found.findings] == [kind]
    assert message in str(found.findings[0])
    assert found.findings[0].is_error
    if found.broken:
        with pytest.raises((FormatError, UnsupportedError), match="`"):
            dequantize(opened(shapes), config={"quantization_config": config})


@pytest.mark.parametrize(
    ("shapes", "config", "expected", "found"),
    [
        (GPTQ, {"quant_method": "gptq", "bits": 4, "group_size": 64}, "[64]", "[32]"),
        (FP8, {"quant_method": "fp8", "weight_block_size": [64, 64]}, "[64, 64]", "[128, 128]"),
    ],
)
def test_sizes_that_the_configuration_says_otherwise(
    shapes: Shapes, config: dict[str, Any], expected: str, found: str
) -> None:
    (finding,) = of(shapes, **config).findings

    assert (finding.kind, finding.tensor, finding.is_error) == ("declared", "a.weight", False)
    assert (finding.expected, finding.found) == (expected, found)


def test_a_size_of_all_is_no_other_size() -> None:
    assert of(GPTQ, quant_method="gptq", bits=4, group_size=-1).findings == ()
    one_group = changed(GPTQ, scales=("F16", [1, 64]), qzeros=("I32", [1, 8]))
    assert of(one_group, quant_method="gptq", bits=4, group_size=1024).findings == ()


def test_groups_that_overlap() -> None:
    eight = GROUP | {"weights": GROUP["weights"] | {"num_bits": 8}}  # type: ignore[operator]
    found = of(PACKED, quant_method="compressed-tensors", config_groups={"g": GROUP, "h": eight})

    assert [finding.kind for finding in found.findings] == ["overlap"]
    assert "groups g and h" in str(found.findings[0])
    named = of(
        PACKED, quant_method="compressed-tensors", config_groups={"h": eight, "g": GROUP | {"targets": ["re:a$"]}}
    )
    assert named.findings == (), "a name is more than a class"


def test_modules_that_are_left_out_and_the_reverse() -> None:
    layers = {f"layers.{n}.up.{end}": one for n in range(4) for name, one in PACKED.items() for end in [name[2:]]}
    del layers["layers.3.up.weight_packed"], layers["layers.3.up.weight_scale"]
    layers["layers.3.up.weight"] = ("BF16", [8, 32])
    config = {"quant_method": "compressed-tensors", "config_groups": {"g": GROUP}}

    found = of(layers, **config, ignore=["re:.*layers\\.1\\..*"])
    assert {finding.tensor for finding in found.findings} == {"layers.1.up.weight", "layers.3.up.weight"}
    assert {finding.kind for finding in found.findings} == {"ignored"}
    assert not any(finding.is_error for finding in found.findings)
    assert of(layers, **config, ignore=["layers.3.up"]).findings == ()


def test_scales_that_one_layer_lacks() -> None:
    layers = {f"{n}.{name[2:]}": one for n in range(4) for name, one in FP8.items()}
    del layers["2.weight_scale_inv"]

    (finding,) = of(layers).findings

    assert (finding.kind, finding.tensor, finding.is_error) == ("missing", "2.weight", True)


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("lm_head", ["lm_head"], ["lm_head.x", "model.lm_head"]),
        ("re:.*lm_head", ["lm_head", "model.lm_head", "lm_head.x"], ["head"]),
        (r"re:model\.layers\.(0|1[0-9])\.", ["model.layers.0.x", "model.layers.17.x"], ["model.layers.1.x"]),
        (r"re:^layers.\d+.(q|k)_proj$", ["layers.12.q_proj"], ["layers.x.q_proj", "layers.1.q_projection"]),
        ("re:(?:a|b)?c+", ["c", "acc", "bc"], ["ab"]),
        ("re:[^ab]x", ["cx"], ["ax"]),
    ],
)
def test_patterns(pattern: str, names: list[str], others: list[str]) -> None:
    patterns = Patterns([pattern])

    assert all(patterns.matching(name) == [0] for name in names)
    assert all(patterns.matching(name) == [] for name in others)


def test_shell_patterns_of_modelopt() -> None:
    patterns = Patterns(["*lm_head*", "model.layers.0*"], is_glob=True)

    assert patterns.matching("model.lm_head") == [0]
    assert patterns.matching("model.layers.01.lm_head") == [0, 1]
    assert patterns.matching("other") == []


@pytest.mark.parametrize(
    "pattern", ["re:(a", "re:a{2}", "re:(?=a)", "re:a)", "re:[a", "re:*", "re:a\\", "re:" + "(" * 99]
)
def test_patterns_that_are_not_read(pattern: str) -> None:
    with pytest.raises((UnsupportedError, LimitError)):
        Patterns([pattern])
    assert (
        of(PACKED, quant_method="compressed-tensors", config_groups={"g": GROUP}, ignore=[pattern]).tensors
        is not None
    )


def test_patterns_take_time_that_is_linear() -> None:
    patterns = Patterns(["re:(a|a)*(a*a*)*b", "re:(.*)*(.*)*x"])
    start = time.perf_counter()

    assert patterns.matching("a" * 20_000) == []
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    "config",
    [
        {"quantization_config": 5},
        {"quantization_config": {"bits": "4", "group_size": -(10**30), "config_groups": [1]}},
        {"quantization_config": {"quant_method": "gptq", "bits": 0, "group_size": 0}},
        {"quantization_config": {"quant_method": [], "weight_block_size": [0, "x"], "ignore": {"a": 1}}},
        {"quantization_config": {"config_groups": {"g": {"targets": [None], "weights": {"num_bits": 1e9}}}}},
        {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 2**30}},
        {"quantization_config": {"weight_block_size": [2**30, 1]}, "text_config": []},
    ],
    ids=str,
)
@pytest.mark.parametrize("shapes", [GPTQ, PACKED, FP8, NVFP4, CT_NVFP4, MXFP4], ids=lambda shapes: next(iter(shapes)))
def test_absurd_configurations(shapes: Shapes, config: dict[str, Any]) -> None:
    view = opened(shapes)
    layouts(view, config)
    try:
        dequantize(view, config=config).load()
    except tensorkeep.TensorkeepError as error:
        message = str(error)
    else:
        return
    assert "`a.weight`" in message or "`e`" in message


@pytest.mark.parametrize("seed", range(40))
def test_absurd_shapes(seed: int) -> None:
    random = np.random.default_rng(seed)
    shapes = {}
    for name, (dtype, shape) in {**GPTQ, **{f"p{name}": one for name, one in PACKED.items()}, **FP8, **MXFP4}.items():
        extents = [int(random.choice([extent, 0, 1, 3, 128])) for extent in shape]
        shapes[name] = (str(random.choice([dtype, dtype, "U8", "I32", "F32"])), extents[: random.integers(0, 5)])
    view = opened(shapes)
    found = layouts(view, {})
    for name in found.tensors:
        kept = view.select(*found.tensors[name].parts.values())
        message = name
        try:
            plain = dequantize(kept, "f32", config={})[name].load()
        except tensorkeep.TensorkeepError as error:
            message = str(error)
        else:
            assert plain.shape == found.tensors[name].shape
        assert name in message


def test_many_plain_tensors_are_quick() -> None:
    shapes = {f"model.layers.{n}.mlp.weight": ("BF16", [0]) for n in range(20_000)}
    view = opened(shapes)
    start = time.perf_counter()

    assert not layouts(view, {})
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    ("parts", "config"),
    [
        (FP8, {"quant_method": "fp8", "modules_to_not_convert": ["lm_head", "model.norm", "a.b.c.d.e"]}),
        (NVFP4, {"quant_method": "modelopt", "ignore": ["*lm_head*", "model.layers.?.norm*", "*.router"]}),
        (PACKED, GROUPED | {"ignore": ["re:.*lm_head.*", r"re:model\.layers\.\d+\.mlp\.gate$"]}),
    ],
)
def test_many_quantized_tensors_are_quick(parts: Shapes, config: dict[str, Any]) -> None:
    headers = {
        f"model.layers.{n}.mlp.up{name[1:]}": Stored(dtype, tuple(shape))
        for n in range(10_000)
        for name, (dtype, shape) in parts.items()
    }
    start = time.perf_counter()

    found = layouts_from(headers, TensorView({}, path=""), {"quantization_config": config})

    assert time.perf_counter() - start < 2
    assert (len(found.tensors), found.findings) == (10_000, ())


def test_parts_of_names_that_are_skipped() -> None:
    layers = {f"model.layers.{n}.{name}": one for n in range(3) for name, one in FP8.items()}

    def skipped(*parts: str) -> list[str | None]:
        found = of(layers, quant_method="fp8", modules_to_not_convert=list(parts)).findings
        return [finding.tensor for finding in found if finding.kind == "ignored"]

    assert len(skipped("a")) == len(skipped("model.layers")) == len(skipped("layers", "b.c")) == 3
    assert skipped("layers.1", "model.layers.2.a") == ["model.layers.1.a.weight", "model.layers.2.a.weight"]
    assert skipped("b", "layer", "ayers.1", "model.layers.1.a.weight") == []


def test_check_lists_what_is_wrong_and_compares_true_shapes() -> None:
    with tensorkeep.open(bytes_of(changed(FP8, weight_scale_inv=("F32", [7, 5])))) as broken:
        (finding,) = tensorkeep.check(broken).findings
    with (
        tensorkeep.open(bytes_of(GPTQ)) as whole,
        tensorkeep.open(bytes_of({"a.weight": ("I32", [64, 128])})) as plain,
    ):
        report = tensorkeep.check(whole, against=plain)

    assert (finding.code, finding.severity, finding.tensors) == ("quantized-contradiction", "error", ("a.weight",))
    assert finding.expected == "blocks of [256, 384]"
    assert str(finding.found).startswith("tensor `a.weight` has scales that do not fit its shape: F32 [7, 5]")
    assert finding.advice
    assert report.findings == ()


def test_dtypes_that_no_number_has() -> None:
    with pytest.raises(DtypeError):
        dequantize(opened(FP8), "i8", config={})


STATIC: dict[str, Any] = {"dynamic": False, "num_bits": 8, "type": "float", "strategy": "tensor"}
LOCAL: dict[str, Any] = {"dynamic": "local", "num_bits": 4, "type": "float", "strategy": "tensor_group"}
ATTENTION: Shapes = {
    f"layers.{n}.self_attn.{which}_proj.{end}": one
    for n in range(3)
    for which in "kv"
    for end, one in {"weight": ("F8_E4M3", [4, 6]), "weight_scale": ("F32", [])}.items()
}
CACHE = {"quant_method": "compressed-tensors", "kv_cache_scheme": STATIC}


def with_inputs(inputs: Any, **config: Any) -> dict[str, Any]:
    weights = {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "config_groups": {"g": group}, **config}


@pytest.mark.parametrize(
    ("shapes", "config", "stored"),
    [
        (CT_NVFP4, with_inputs(LOCAL), "a.input_global_scale"),
        (NVFP4, with_inputs(STATIC, quant_method="modelopt"), "a.input_scale"),
        (ATTENTION, with_inputs(STATIC), "layers.0.self_attn.k_proj.input_scale"),
        (changed(FP8), {"quant_method": "fp8", "activation_scheme": "static"}, "a.activation_scale"),
    ],
)
def test_inputs_whose_scales_are_not_there(shapes: Shapes, config: dict[str, Any], stored: str) -> None:
    found = of(shapes, **config)
    modules = {name.rpartition(".")[0] for name in shapes}
    end = stored.rpartition(".")[2]
    scales = {f"{module}.{end}": ("F32", [1]) for module in modules}

    assert [finding.kind for finding in found.findings] == ["activations"] * len(modules)
    assert found.findings[0].expected == f"`{stored}`"
    assert all(finding.is_error for finding in found.findings)
    whole = of(shapes | scales, **config)
    assert whole.findings == ()
    assert whole.leftovers == scales.keys()
    (wrong,) = of(shapes | scales | {stored: ("I32", [1])}, **config).findings
    assert (wrong.kind, wrong.tensor) == ("contradiction", stored)


@pytest.mark.parametrize(
    "inputs", [None, {"dynamic": True, "num_bits": 8}, {"dynamic": True, "num_bits": 8, "strategy": "token"}]
)
def test_inputs_that_need_no_scales(inputs: Any) -> None:
    assert of(CT_NVFP4, **with_inputs(inputs)).findings == ()
    assert of(FP8, quant_method="fp8", activation_scheme="dynamic").findings == ()
    assert of(GPTQ, quant_method="gptq", bits=4, group_size=32).findings == ()


@pytest.mark.parametrize(
    "form", ["{}.{}_scale", "{}.{}_proj.{}_scale", "{}.attn.{}_scale", "{}.{}_proj.output_scale"]
)
def test_scales_of_the_cache_that_are_not_there(form: str) -> None:
    scales: Shapes = {
        form.format(f"layers.{n}.self_attn", which, which): ("F32", [1]) for n in range(3) for which in "kv"
    }

    (none,) = of(ATTENTION, **CACHE).findings
    one_lacks = {name: one for name, one in scales.items() if not (name.startswith("layers.1.") and "k_" in name)}
    (lacking,) = of(ATTENTION | one_lacks, **CACHE).findings
    (wrong,) = of(ATTENTION | scales | dict.fromkeys(list(scales)[:1], ("BOOL", [1])), **CACHE).findings

    assert (none.kind, none.tensor, none.is_error) == ("activations", None, False)
    assert none.expected == "`layers.0.self_attn.k_scale`"
    assert (lacking.kind, lacking.tensor) == ("activations", "layers.1.self_attn.k_scale")
    assert (wrong.kind, wrong.found) == ("contradiction", "BOOL [1]")
    assert of(ATTENTION | scales, **CACHE).findings == ()
    assert (
        of(ATTENTION, quant_method="compressed-tensors", kv_cache_scheme={**STATIC, "dynamic": True}).findings == ()
    )


def test_an_attention_without_a_cache_needs_no_scales() -> None:
    encoder = {f"vision.{name}": one for name, one in ATTENTION.items()}
    scales = {f"layers.{n}.self_attn.{which}_scale": ("F32", [1]) for n in range(3) for which in "kv"}

    assert of(ATTENTION | encoder | scales, **CACHE).findings == ()


@pytest.mark.parametrize(
    ("shapes", "method", "layout"),
    [
        (GPTQ, "awq", "gptq"),
        (AWQ_SOUND, "gptq", "awq"),
        (NVFP4, "compressed-tensors", "modelopt-nvfp4"),
        (CT_NVFP4, "modelopt", "nvfp4-pack-quantized"),
        (FP8, "bitsandbytes", "block-fp8"),
    ],
)
def test_a_method_that_the_layouts_contradict(shapes: Shapes, method: str, layout: str) -> None:
    (finding,) = of(shapes, quant_method=method).findings

    assert (finding.kind, finding.tensor, finding.found) == ("method", "a.weight", layout)
    assert finding.is_error
    assert finding.expected == f"a layout of {method}"


def test_layouts_of_several_methods_are_doubtful() -> None:
    both = FP8 | {f"b{name[1:]}": one for name, one in GPTQ.items()}

    (finding,) = of(both, quant_method="fp8").findings

    assert (finding.kind, finding.tensor, finding.is_error) == ("method", "b.weight", False)
    assert of(both, quant_method="a later one").findings == ()


def test_patterns_that_take_too_long_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorkeep.quantized._patterns._MAX_STEPS", 1)

    (finding,) = of(GPTQ, quant_method="gptq", bits=4, group_size=32, ignore=["re:.*x"]).findings

    assert (finding.kind, finding.is_error) == ("unsupported", False)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "no block in the configuration; it is usually [128, 128]"),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "a block of [64, 64] in the configuration"),
    ],
    ids=["usual", "declared"],
)
def test_it_says_whose_block_does_not_fit(config: dict[str, Any], said: str) -> None:
    shapes = changed(FP8, weight_scale_inv=("F32", [7, 5]))
    finding = layouts(opened(shapes), {"quantization_config": config}).findings[0]
    assert finding.found == f"F32 [7, 5], and {said}"
