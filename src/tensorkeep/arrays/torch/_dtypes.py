"""torch's dtypes for rows of the dtype table (imports torch)."""

from __future__ import annotations

from functools import cache

import torch

from tensorkeep.dtypes import DType


@cache
def torch_dtype(dtype: DType) -> torch.dtype | None:
    """Return torch's dtype; None if this version of torch has none."""
    found = getattr(torch, dtype.torch, None) if dtype.torch else None
    return found if isinstance(found, torch.dtype) else None
