"""The numbers in ggml's blocks, and blocks of numbers.

- `_readers`: how tensors in blocks are read.
- `_dequantize`: `dequantize`, which knows all types.
- `_layouts`: the fields of a block.
- `_plain`: blocks with one scale.
- `_k`: blocks in sub-blocks with scales of their own.
- `_tables`: numbers from a table of 16.
- `_grids`: groups of numbers from a grid.
- `_grid_points`: the grids.
- `_quantize`: numbers to Q8_0.
"""

from tensorkeep.tensors.quantized._dequantize import DEQUANTIZED, dequantize
from tensorkeep.tensors.quantized._quantize import quantize_q8_0
from tensorkeep.tensors.quantized._readers import BlocksToWrite, QuantizedReader

__all__ = [
    "DEQUANTIZED",
    "BlocksToWrite",
    "QuantizedReader",
    "dequantize",
    "quantize_q8_0",
]
