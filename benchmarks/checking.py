"""Checking whether very many tensors make sense, from headers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import tensorkeep
from benchmarks import inputs, limits
from benchmarks.case import AtMostOver, Case, Contender, Place

__all__ = ["CASES"]

_Parts = Mapping[str, tuple[str, tuple[int, ...]]]
_N_EXPERTS = 8

_PLAIN: _Parts = {"weight": ("BF16", (256, 256))}
_BLOCKS_OF_F8: _Parts = {"weight": ("F8_E4M3", (256, 256)), "weight_scale_inv": ("F32", (2, 2))}
_NVFP4: _Parts = {
    "weight": ("U8", (256, 128)),
    "weight_scale": ("F8_E4M3", (256, 16)),
    "weight_scale_2": ("F32", ()),
    "input_scale": ("F32", ()),
}
_OF_DEEPSEEK = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]}
_OF_MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "*.router"]}


class _Source:
    """A model of experts whose weights are stored in some parts, with its configuration."""

    def __init__(self, place: Place, name: str, parts: _Parts, quantization: Mapping[str, Any] | None) -> None:
        directory = place.folder / f"checked-{name}"
        directory.mkdir(exist_ok=True)
        config = {} if quantization is None else {"quantization_config": quantization}
        (directory / "config.json").write_text(json.dumps({"num_experts": _N_EXPERTS, **config}))
        n_tensors = place.size(100_000, 640)
        n_tensors -= n_tensors % (_N_EXPERTS * 3 * len(parts))
        self.path = inputs.empty_file(
            directory / f"{n_tensors}.safetensors", dict(islice(_tensors(parts), n_tensors))
        )
        self.header = inputs.header_of(self.path)


def _tensors(parts: _Parts) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
    """Return the experts of one layer after another, without end."""
    layer = 0
    while True:
        for expert in range(_N_EXPERTS):
            for projection in ("gate_proj", "up_proj", "down_proj"):
                for end, one in parts.items():
                    yield f"model.layers.{layer}.mlp.experts.{expert}.{projection}.{end}", one
        layer += 1


def _check(source: _Source) -> object:
    report = tensorkeep.check(source.path)
    if report.findings:
        raise RuntimeError(str(report.findings[0]))
    return report


def _open(source: _Source) -> object:
    with tensorkeep.open(source.path) as opened:
        return len(opened)


def _case(name: str, title: str, parts: _Parts, quantization: Mapping[str, Any] | None = None) -> Case:
    return Case(
        name=f"checking/{name}",
        title=title,
        prepare=lambda place: _Source(place, name, parts, quantization),
        ours=Contender("tensorkeep.check", _check),
        peers=(Contender("tensorkeep.open", _open),),
        limits=limits.DECODED_HEADER,
        target=AtMostOver(0.9),
    )


CASES = (
    _case("plain", "`check` 100,000 tensors of experts in BF16, headers", _PLAIN),
    _case("fp8", "the same in blocks of F8, each with scales", _BLOCKS_OF_F8, _OF_DEEPSEEK),
    _case("nvfp4", "the same in ModelOpt's NVFP4, four tensors for each weight", _NVFP4, _OF_MODELOPT),
)
