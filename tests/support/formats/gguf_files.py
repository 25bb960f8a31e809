"""GGUF files as the gguf package writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter

from tests.contracts.kind import Arrays


def write_gguf(
    path: Path,
    arrays: Arrays,
    *,
    blocks: Mapping[str, tuple[npt.NDArray[np.uint8], GGMLQuantizationType]] | None = None,
    keys: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Write arrays, rows of blocks with their type, and keys whose values are texts or lists."""
    writer = GGUFWriter(path, "llama", **options)
    for key, value in (keys or {}).items():
        (writer.add_array if isinstance(value, list) else writer.add_string)(key, value)
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    for name, (rows, type_) in (blocks or {}).items():
        writer.add_tensor(name, rows, raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def random_blocks(type_: GGMLQuantizationType, n_rows: int, n_blocks: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Return rows of blocks of random bytes."""
    _, block_nbytes = GGML_QUANT_SIZES[type_]
    return np.random.default_rng(seed).integers(0, 256, (n_rows, n_blocks * block_nbytes), np.uint8)
