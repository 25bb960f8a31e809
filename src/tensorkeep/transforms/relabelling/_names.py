"""What the parts of tensors in NVFP4 are called. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

Nvfp4Layout: TypeAlias = Literal["compressed-tensors", "gguf", "modelopt"]
"""The library whose names a checkpoint has."""


class PartNames(msgspec.Struct, frozen=True):
    """Names in one layout.

    Attributes:
        key: What callers name it.
        layout: What a `QuantizedTensor` in it says.
        endings: Role of a part to what follows the name of the weight, or of its module.
        scalar: The shape of a scale of all.
        of_module: Roles whose parts are named after the module.
        divides: Whether numbers are divided by the scale of all, not multiplied.
    """

    key: Nvfp4Layout
    layout: str
    endings: Mapping[str, str]
    scalar: tuple[int, ...]
    of_module: frozenset[str] = frozenset(("input_scale",))
    divides: bool = False

    def name(self, role: str, weight: str) -> str:
        """Return the name of a part of a weight."""
        ending = self.endings[role]
        if role not in self.of_module:
            return weight + ending
        module, _, last = weight.rpartition(".")
        return f"{module}.{ending}" if last == "weight" else f"{weight}{self.separator}{ending}"

    @property
    def separator(self) -> str:
        """What is between a name and an ending, if the name is not a module's."""
        return "." if self.key == "gguf" else "_"


NVFP4_LAYOUTS: Final[dict[Nvfp4Layout, PartNames]] = {
    "compressed-tensors": PartNames(
        "compressed-tensors",
        "nvfp4-pack-quantized",
        {"data": "_packed", "scales": "_scale", "scale": "_global_scale", "input_scale": "input_global_scale"},
        (1,),
        divides=True,
    ),
    "gguf": PartNames(
        "gguf",
        "gguf",
        {"data": "", "scale": "scale", "input_scale": "input_scale"},
        (1,),
        of_module=frozenset(("scale", "input_scale")),
    ),
    "modelopt": PartNames(
        "modelopt",
        "modelopt-nvfp4",
        {"data": "", "scales": "_scale", "scale": "_scale_2", "input_scale": "input_scale"},
        (),
    ),
}
"""The names in each layout."""

SCALES_OF_ALL: Final = frozenset(("scale", "input_scale"))
"""Roles of scales that are not in the blocks; for layouts that divide and multiply, each other's reciprocals."""
