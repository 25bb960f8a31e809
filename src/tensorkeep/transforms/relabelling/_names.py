"""What the parts of tensors in NVFP4 are called. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

Nvfp4Layout: TypeAlias = Literal["compressed-tensors", "modelopt"]
"""The library whose names a checkpoint has."""


class PartNames(msgspec.Struct, frozen=True):
    """Names in one layout.

    Attributes:
        layout: What a `QuantizedTensor` in it says.
        endings: Role of a part to what follows the name of the weight; of input scales, of its module.
        scalar: The shape of a scale of all.
    """

    layout: str
    endings: Mapping[str, str]
    scalar: tuple[int, ...]

    def name(self, role: str, weight: str) -> str:
        """Return the name of a part of a weight."""
        if role != "input_scale":
            return weight + self.endings[role]
        module, _, last = weight.rpartition(".")
        return f"{module}.{self.endings[role]}" if last == "weight" else f"{weight}_{self.endings[role]}"


NVFP4_LAYOUTS: Final[dict[Nvfp4Layout, PartNames]] = {
    "compressed-tensors": PartNames(
        "nvfp4-pack-quantized",
        {"data": "_packed", "scales": "_scale", "scale": "_global_scale", "input_scale": "input_global_scale"},
        (1,),
    ),
    "modelopt": PartNames(
        "modelopt-nvfp4", {"data": "", "scales": "_scale", "scale": "_scale_2", "input_scale": "input_scale"}, ()
    ),
}
"""The names in each layout."""

RECIPROCAL: Final = frozenset(("scale", "input_scale"))
"""Roles whose numbers are each other's reciprocals."""
