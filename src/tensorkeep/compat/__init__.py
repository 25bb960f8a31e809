"""The names of the safetensors package (0.8 and 0.9): same arguments, same results, same errors or better ones.

- `wording`: arguments checked, and errors worded, as by the reference.
- `_prefetch`: `PrefetchLoader`, tensors that threads read in the background.
- `_safe_open`: `safe_open` and its slices.
- `files`: whole files, written and read by the four functions of each of its modules.
- `_serialize`: `serialize`, `serialize_file`, `deserialize` and `TensorSpec`.
- `describing`: tensors of any library, described for writing (imports NumPy).
- `torch_sharing`: which tensors of a state dict share memory, as `safetensors.torch` says it (imports torch).
- `torch_raw`: dtype tables of `safetensors.torch`, and tensors as bytes (imports torch).
"""

from tensorkeep.compat._prefetch import PrefetchLoader
from tensorkeep.compat._safe_open import PySafeSlice, TensorMeta, _safe_open_handle, safe_open
from tensorkeep.compat._serialize import TensorSpec, deserialize, serialize, serialize_file
from tensorkeep.errors import SafetensorError

__all__ = [
    "PrefetchLoader",
    "PySafeSlice",
    "SafetensorError",
    "TensorMeta",
    "TensorSpec",
    "_safe_open_handle",
    "deserialize",
    "safe_open",
    "serialize",
    "serialize_file",
]
