"""How a model's own plan for tensor parallelism divides its tensors: transformers says it of a config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tensorkeep.checking._reference import built_by_library
from tensorkeep.checking._settings import Settings


class Divided(msgspec.Struct, frozen=True):
    """How one tensor is divided.

    Attributes:
        dim: The dimension.
        ndim: Number of dimensions.
        n_blocks: How many matrices lie one after another along it, each divided by itself.
    """

    dim: int
    ndim: int
    n_blocks: int


class ModelDivision(msgspec.Struct, frozen=True):
    """What the plan of a model says.

    Attributes:
        model: Name of the class.
        prefix: What names begin with in the model with a head, and not in the same one without it.
        tensors: Name of each divided tensor, as transformers saves it, to how.
        tied: Names of one tensor.
        settings: The config.
    """

    model: str
    prefix: str
    tensors: Mapping[str, Divided]
    tied: Sequence[Sequence[str]]
    settings: Settings


def division_by_library(config: str) -> ModelDivision:
    """Return how the model of a config is divided; it is built on device meta, in a process of its own."""
    settings, answer = built_by_library(config, {"class": None, "is_divided": True})
    tensors = {name: msgspec.convert(found, Divided) for name, found in answer["divided"].items()}
    return ModelDivision(answer["model"], answer["prefix"], tensors, answer["forms"][-1]["tied"], settings)
