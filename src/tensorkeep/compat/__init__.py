"""The names of the safetensors package (0.8.0): same arguments, same results, same errors or better ones.

- `wording`: arguments checked as the reference checks them, failures told in its words.
- `_safe_open`: `safe_open` and the slices it gives.
- `_serialize`: `serialize`, `serialize_file`, `deserialize` and `TensorSpec`.
- `torch_sharing`: what `safetensors.torch` does besides (import torch).
- `torch_raw`: what `safetensors.torch` does besides (import torch).
"""

from tensorkeep.compat._safe_open import SafeSlice, _safe_open_handle, safe_open
from tensorkeep.compat._serialize import TensorSpec, deserialize, serialize, serialize_file

__all__ = [
    "SafeSlice",
    "TensorSpec",
    "_safe_open_handle",
    "deserialize",
    "safe_open",
    "serialize",
    "serialize_file",
]
