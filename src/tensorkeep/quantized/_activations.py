"""Scales of inputs and of the KV cache that the configuration announces: engines take 1 for missing ones. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from tensorkeep.quantized._record import Headers, LayoutFinding, QuantizedTensor, Stored
from tensorkeep.quantized._settings import Settings, kind_of, module_of
from tensorkeep.quantized.families import SCALES, beside

_LAYOUTS: Final = {
    "nvfp4-pack-quantized": "input_global_scale",
    "modelopt-nvfp4": "input_scale",
    "modelopt-fp8": "input_scale",
    "float-quantized": "input_scale",
    "int-quantized": "input_scale",
    "block-fp8": "activation_scale",
}
"""Layouts whose inputs may have a scale, and its name."""

_find_projection: Final = re.compile(r"(.*\.|)([kv])_proj\.(?:weight|weight_packed|qweight)").fullmatch

_PLACES: Final = ("{0}{1}_scale", "{0}{1}_proj.{1}_scale", "{0}attn.{1}_scale", "{0}{1}_proj.output_scale")
"""Where libraries keep the scale of keys or values; a few keep one for both, as `kv_scale`."""


def examine_activations(
    headers: Headers, tensors: Mapping[str, QuantizedTensor], settings: Settings
) -> Iterator[LayoutFinding]:
    """Give the scales of inputs and of the KV cache that are not there, or are no floating-point numbers."""
    for name, tensor in tensors.items():
        stored = tensor.parts.get("input_scale")
        if stored is not None:
            yield from _no_numbers(stored, headers[stored])
        elif tensor.layout in _LAYOUTS and settings.has_input_scale(module_of(name)):
            yield LayoutFinding(
                "activations",
                f"tensor `{name}` has no scale for its inputs",
                name,
                expected=f"`{beside(name, _LAYOUTS[tensor.layout])}`",
            )
    if settings.config.has_cache_scales:
        yield from _examine_cache(headers)


def _examine_cache(headers: Headers) -> Iterator[LayoutFinding]:
    """Give attentions without scales; only such as have them in other layers, for some need no cache."""
    lacking: dict[str, list[str]] = {}
    n_found: Counter[str] = Counter()
    for name in headers:
        match = _find_projection(name)
        if match is None:
            continue
        kind = kind_of(f"{match[1]}{match[2]}_scale")
        scale = next((place for place in _places(match[1], match[2]) if place in headers), None)
        if scale is None:
            lacking.setdefault(kind, []).append(f"{match[1]}{match[2]}_scale")
        else:
            n_found[kind] += 1
            yield from _no_numbers(scale, headers[scale])
    if lacking and not n_found:
        first = next(iter(lacking.values()))[0]
        yield _without_cache_scale("the KV cache has no scales", None, first)
    for kind in filter(n_found.get, lacking):
        for name in lacking[kind]:
            yield _without_cache_scale(f"the KV cache has no `{name}`, which other layers have", name, name)


def _places(attention: str, which: str) -> Iterator[str]:
    yield from (place.format(attention, which) for place in _PLACES)
    yield f"{attention}kv_scale"


def _without_cache_scale(message: str, name: str | None, expected: str) -> LayoutFinding:
    return LayoutFinding("activations", message, name, expected=f"`{expected}`", is_error=False)


def _no_numbers(name: str, stored: Stored) -> Iterator[LayoutFinding]:
    if stored.dtype not in SCALES:
        yield LayoutFinding(
            "contradiction",
            f"`{name}` is a scale in another dtype",
            name,
            expected=" or ".join(sorted(SCALES)),
            found=str(stored),
        )
