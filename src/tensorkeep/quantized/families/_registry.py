"""All layouts, in the order in which they are asked. Pure."""

from __future__ import annotations

from typing import Final

from tensorkeep.quantized.families._awq import AWQ
from tensorkeep.quantized.families._base import Layout
from tensorkeep.quantized.families._bitsandbytes import BITSANDBYTES
from tensorkeep.quantized.families._gptq import GPTQ
from tensorkeep.quantized.families._mxfp4 import MXFP4_EXPERTS, MXFP4_PACKED
from tensorkeep.quantized.families._nvfp4 import MODELOPT_NVFP4, NVFP4
from tensorkeep.quantized.families._packed import PACKED
from tensorkeep.quantized.families._scaled import SCALED
from tensorkeep.quantized.families._torchao import TORCHAO

_LAYOUTS: Final = (
    GPTQ,
    AWQ,
    PACKED,
    NVFP4,
    MXFP4_PACKED,
    BITSANDBYTES,
    MXFP4_EXPERTS,
    TORCHAO,
    MODELOPT_NVFP4,
    SCALED,
)

BY_NAME: Final = {name: layout for layout in _LAYOUTS for name in layout.names}
"""What a tensor says as its layout, to the layout."""

BY_ENDING: Final = {
    ending: tuple(layout for layout in _LAYOUTS if ending in layout.endings)
    for ending in dict.fromkeys(ending for layout in _LAYOUTS for ending in layout.endings)
}
"""How names end, to the layouts that are recognized by that."""

BY_DTYPE: Final[dict[str, tuple[Layout, ...]]] = {
    dtype: tuple(layout for layout in _LAYOUTS if dtype in layout.dtypes)
    for dtype in sorted({dtype for layout in _LAYOUTS for dtype in layout.dtypes})
}
"""Dtype to the layouts that are recognized by that."""
