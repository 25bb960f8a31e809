"""Quantized tensors under the names of another library: the same blocks, other names.

- `_scales`: a scale and its reciprocal, and which originals a reciprocal loses. Pure.
- `_names`: what NVFP4's parts are called in each layout. Pure.
- `_relabel`: `relabel`.
- `_section`: what `config.json` says of it. Pure.
"""

from tensorkeep.transforms.relabelling._names import NVFP4_LAYOUTS, Nvfp4Layout
from tensorkeep.transforms.relabelling._relabel import relabel
from tensorkeep.transforms.relabelling._section import nvfp4_in_config

__all__ = ["NVFP4_LAYOUTS", "Nvfp4Layout", "nvfp4_in_config", "relabel"]
