"""Quantized tensors in the form of another library: the same blocks, other names and orders.

- `_scales`: scales in another layout, and which originals that loses. Pure.
- `_names`: what NVFP4's parts are called in each layout. Pure.
- `_ggml_blocks`: numbers and scales to ggml's blocks, and back. Pure.
- `_parts`: the parts of a tensor, from any layout.
- `_relabel`: `relabel`.
- `_section`: what `config.json` says of it. Pure.
"""

from tensorkeep.transforms.relabelling._names import NVFP4_LAYOUTS, Nvfp4Layout
from tensorkeep.transforms.relabelling._relabel import relabel
from tensorkeep.transforms.relabelling._section import nvfp4_in_config

__all__ = ["NVFP4_LAYOUTS", "Nvfp4Layout", "nvfp4_in_config", "relabel"]
