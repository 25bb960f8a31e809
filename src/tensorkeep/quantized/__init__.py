"""Quantized tensors as checkpoints store them: which they are, what their numbers are, and what is wrong with them.

- `_record`: `QuantizedTensor`, `LayoutFinding` and `Layouts`. Pure.
- `_numbers`: packed bits to numbers. Pure.
- `_blocks`: blocks of elements that share a scale. Pure.
- `_patterns`: which modules the patterns of a configuration name. Pure.
- `_config`: what `config.json` and `hf_quant_config.json` say. Pure.
- `_settings`: what these say of each module. Pure.
- `families/`: the ways to store quantized tensors, one file for each family. Pure.
- `_declared`: blocks of another size than a configuration says. Pure.
- `_activations`: scales of inputs and of the KV cache that it announces. Pure.
- `_method`: layouts of another method than it says. Pure.
- `_recognize`: quantized tensors from headers and configurations. Pure.
- `_read`: `layouts`.
- `computing/`: numbers, computed when they are read.
- `_dequantize`: `dequantize`.
"""

from tensorkeep.quantized._dequantize import dequantize
from tensorkeep.quantized._read import layouts, layouts_from, read_config
from tensorkeep.quantized._record import LayoutFinding, Layouts, QuantizedTensor

__all__ = [
    "LayoutFinding",
    "Layouts",
    "QuantizedTensor",
    "dequantize",
    "layouts",
    "layouts_from",
    "read_config",
]
