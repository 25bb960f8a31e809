"""The names and settings of an adapter that is extracted, as peft reads them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

PREFIX = "base_model.model."


class AdaptedLayer(msgspec.Struct, frozen=True):
    """A layer that gets two factors.

    Attributes:
        name: Its name in the base model.
        rank: Columns of the left factor.
        is_embedding: Whether it is an embedding, whose factors have other names, and are transposed.
    """

    name: str
    rank: int
    is_embedding: bool

    @property
    def names(self) -> tuple[str, str]:
        """Names of the factors: (rank, inputs) and (outputs, rank)."""
        end_a, end_b = (
            ("lora_embedding_A", "lora_embedding_B") if self.is_embedding else ("lora_A.weight", "lora_B.weight")
        )
        return f"{PREFIX}{self.name}.{end_a}", f"{PREFIX}{self.name}.{end_b}"


def whole_name(name: str, layers: Mapping[str, AdaptedLayer]) -> str:
    """Return the name of a tensor that an adapter holds whole: a bias of an adapted layer, or of another module."""
    layer, _, parameter = name.rpartition(".")
    return f"{PREFIX}{layer}.base_layer.{parameter}" if layer in layers else PREFIX + name


def adapter_config(
    layers: Mapping[str, AdaptedLayer],
    whole: Iterable[str],
    all_layers: Iterable[str],
    *,
    rank: int,
    fan_in_fan_out: bool,
    base_model: str | None,
) -> dict[str, Any]:
    """Return the content of `adapter_config.json`."""
    others = {layer.name: layer.rank for layer in layers.values() if layer.rank != rank}
    owners = dict.fromkeys(name.rpartition(".")[0] for name in whole)
    return {
        "base_model_name_or_path": base_model,
        "peft_type": "LORA",
        "task_type": None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": rank,
        "rank_pattern": others,
        "alpha_pattern": others,
        "lora_dropout": 0.0,
        "target_modules": _short_names(layers, all_layers),
        "modules_to_save": [owner for owner in owners if owner not in layers] or None,
        "bias": "lora_only" if any(owner in layers for owner in owners) else "none",
        "fan_in_fan_out": fan_in_fan_out,
        "init_lora_weights": True,
        "use_rslora": False,
        "use_dora": False,
    }


def _short_names(layers: Iterable[str], all_layers: Iterable[str]) -> list[str]:
    """Return the last part of a name if all layers with it are adapted, as people write them, else the whole name."""
    adapted = set(layers)
    partly = {_last(layer) for layer in all_layers if layer not in adapted}
    return sorted({layer if _last(layer) in partly else _last(layer) for layer in adapted})


def _last(layer: str) -> str:
    return layer.rpartition(".")[2]
