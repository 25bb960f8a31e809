"""How tensors are quantized, and what is wrong with that."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from tensorkeep.checking._findings import CheckFinding, finding_about
from tensorkeep.checking._names import Expected, Headers, Shape
from tensorkeep.checking._settings import Settings
from tensorkeep.errors import FormatError
from tensorkeep.measuring import TensorStatistics
from tensorkeep.quantized import LayoutFinding, Layouts, QuantizedTensor, layouts_from
from tensorkeep.tensors import LazyTensors
from tensorkeep.texts import counted

_PACKED: Final = frozenset(("I32", "U8", "I8", "F8_E4M3", "F8_E5M2"))
"""Dtypes that parts of quantized tensors have."""

_SERIALIZED: Final = frozenset(("gptq", "awq", "fp8", "fbgemm_fp8", "mxfp4"))
"""Methods whose checkpoints hold quantized tensors; other methods also quantize when a model is loaded."""

_DIVISORS: Final = frozenset(("nvfp4-pack-quantized",))
"""Layouts whose scale of all is to divide by."""

_OF_WEIGHTS: Final = {
    **dict.fromkeys(("modelopt-nvfp4", "nvfp4-pack-quantized"), "scale"),
    **dict.fromkeys(("modelopt-fp8", "float-quantized", "block-fp8", "scaled-fp8", "int-quantized"), "scales"),
}
"""Layout to the role of the scales whose size is known: the largest weight, divided by the largest code."""

_is_cache_scale: Final = re.compile(r"\.(?:k|v|kv)_scale$").search

_WIDE: Final = frozenset(("F64", "F32", "F16", "BF16"))

_ADVICE: Final = {
    "missing": "Get these tensors again from where the checkpoint was made",
    "activations": "Get these scales again from where the checkpoint was made, or quantize it again with calibration",
    "contradiction": "Get the checkpoint again, or use the config.json that was saved with these tensors",
    "reciprocal": "Leave out the scale that the layout of the configuration does not have: tensorkeep reshard --drop",
    "overlap": "Let each module match one group of config_groups in config.json",
    "declared": "Use the config.json that was saved with these tensors",
    "ignored": "Use the config.json that was saved with these tensors",
    "method": "Use the config.json that was saved with these tensors, or write their method into it",
    "unsupported": None,
}
"""What to do about each kind of finding."""

_MESSAGES: Final = {
    "missing": "quantized tensors lack a part, without which their numbers are not known",
    "activations": "scales of inputs or of the KV cache that the configuration announces are not there: "
    "engines take 1 instead",
    "contradiction": "parts of quantized tensors do not fit each other",
    "reciprocal": "quantized tensors have a scale and its reciprocal: loaders will not agree on one",
    "overlap": "groups of the configuration name the same modules and differ",
    "declared": "the configuration and the tensors do not agree on how many elements share a scale",
    "ignored": "the configuration and the tensors do not agree on what is quantized",
    "method": "tensors are in a layout of another method than the configuration says, by which loaders choose",
    "unsupported": "quantized in a way that is not known here, so it was not checked",
}


def quantized_in(tensors: LazyTensors, headers: Headers) -> Layouts | None:
    """Recognize the quantized tensors of a checkpoint; None if no dtype is one that they have."""
    if any(header.dtype in _PACKED for header in headers.values()):
        with suppress(FormatError):  # of the configuration, which is for others to say
            return layouts_from(headers, tensors)
    return None


def examine_quantized(found: Layouts) -> Iterator[CheckFinding]:
    """Find what is wrong with quantized tensors, in one finding for each sort."""
    sorts: dict[str, list[LayoutFinding]] = {}
    for finding in found.findings:
        sorts.setdefault(finding.kind, []).append(finding)
    for kind, alike in sorts.items():
        is_known = kind != "unsupported"
        yield finding_about(
            f"quantized-{kind}",
            "note" if not is_known else "error" if any(finding.is_error for finding in alike) else "warning",
            _MESSAGES[kind],
            [finding.tensor for finding in alike if finding.tensor is not None],
            expected=alike[0].expected,
            found=alike[0].message + (f": {alike[0].found}" if alike[0].found else ""),
            advice=_ADVICE[kind],
        )


def examine_plain(headers: Headers, settings: Settings) -> Iterator[CheckFinding]:
    """Find a configuration of quantized tensors beside plain ones, as it remains after they were dequantized."""
    given = settings.text.get("quantization_config") or settings.top.get("quantization_config")
    method = given.get("quant_method") if isinstance(given, dict) else None
    if method in _SERIALIZED and headers and not any(header.dtype in _PACKED for header in headers.values()):
        yield finding_about(
            "quantized-method",
            "error",
            f"config.json says that the weights are quantized ({method}), and no tensor is",
            expected=f"tensors in a layout of {method}",
            found=f"{counted(len(headers), 'plain tensor')}",
            advice="Remove quantization_config from config.json if the weights were dequantized",
        )


def examine_scales(found: Layouts, measured: Mapping[str, TensorStatistics]) -> Iterator[CheckFinding]:
    """Find scales that are zero or negative, or reciprocals of what their layout has."""
    of_cache = filter(_is_cache_scale, measured if found.method is not None else ())
    wrong = {name: _least(measured, name) for name in of_cache if _is_no_scale(measured[name])}
    reciprocal: dict[str, float] = {}
    for tensor in found.tensors.values():
        for role in ("input_scale", _OF_WEIGHTS.get(tensor.layout, "")):
            name = tensor.parts.get(role, "")
            if name in measured and _is_no_scale(measured[name]):
                wrong[name] = _least(measured, name)
            elif name in measured and role != "input_scale" and _is_reciprocal(tensor, measured[name]):
                reciprocal[name] = _least(measured, name)
    for name, least in list(wrong.items())[:1]:
        yield finding_about(
            "quantized-scale",
            "error",
            f"{counted(len(wrong), 'scale')} that are zero or negative",
            list(wrong),
            expected="positive numbers",
            found=f"{least:.6g} in `{name:.200}`",
            advice="Get these tensors again from where the checkpoint was made",
        )
    for name, least in list(reciprocal.items())[:1]:
        yield finding_about(
            "quantized-reciprocal",
            "error",
            f"{counted(len(reciprocal), 'scale')} that look like the reciprocals of what the layout has",
            list(reciprocal),
            expected="scales with which weights are of usual size",
            found=f"{least:.6g} in `{name:.200}`",
            advice="Where a tool only renamed scales of another layout, use tensorkeep transform relabel instead",
        )


def _least(measured: Mapping[str, TensorStatistics], name: str) -> float:
    return float(measured[name].min or 0)


def _is_no_scale(each: TensorStatistics) -> bool:
    """Say whether a scale is negative, or zero for everything: a part of the numbers may well be zero."""
    return each.min is not None and (each.min < 0 or (each.n_elements == 1 and each.min == 0))


def _is_reciprocal(tensor: QuantizedTensor, each: TensorStatistics) -> bool:
    """Say whether weights would be larger than any model has, for codes use all of their range."""
    if each.min is None or each.max is None:
        return False
    return each.max < 1 if tensor.layout in _DIVISORS else each.min > 1


def true_shapes(found: Layouts | None) -> dict[str, Shape]:
    """Return the shapes of quantized tensors; those whose numbers are not known have none, with which all fits."""
    return (
        {} if found is None else {**dict.fromkeys(found.broken, ()), **{k: v.shape for k, v in found.tensors.items()}}
    )


def packed_in_floats(found: Layouts | None, headers: Headers) -> set[str]:
    """Return the tensors of floating-point dtypes whose bits are codes, as bitsandbytes can store them."""
    parts = [] if found is None else [one.parts["data"] for one in found.tensors.values()]
    return {name for name in parts if headers[name].dtype in _WIDE}


def plain_headers(headers: Headers, found: Layouts | None) -> Headers:
    """Return headers in which quantized tensors have their true shapes, and their parts are left out."""
    if found is None or not found.tensors:
        return headers
    parts = found.part_names() | found.leftovers
    plain = {name: header for name, header in headers.items() if name not in parts}
    return plain | {
        name: Expected(headers[one.parts["data"]].dtype, one.shape) for name, one in found.tensors.items()
    }
