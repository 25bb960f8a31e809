"""Numbers of quantized tensors, computed when they are read.

- `_reader`: computes the numbers of a tensor from parts of others.
- `_view`: `with_numbers`.
"""

from tensorkeep.quantized.computing._view import part_names, with_numbers

__all__ = ["part_names", "with_numbers"]
