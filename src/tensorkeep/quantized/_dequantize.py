"""Views of checkpoints whose quantized tensors are numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorkeep.quantized.computing import with_numbers
from tensorkeep.tensors import LazyTensors, TensorView


def dequantize(tensors: LazyTensors, dtype: Any = "bf16", *, config: Mapping[str, Any] | None = None) -> TensorView:
    """Return a view in which quantized tensors are plain ones, computed when they are read.

        with tensorkeep.open("model-gptq/") as file:
            plain = tensorkeep.quantized.dequantize(file)
            plain["model.layers.0.mlp.up_proj.weight"][:10]
            tensorkeep.save_checkpoint(plain, "model-bf16/")

    Numbers are computed in F32 and rounded once. They equal what the libraries that write the layouts compute, in
    the same dtype; see `layouts` for which layouts are known.

    Args:
        tensors: An open file, checkpoint or view, opened for any array library.
        dtype: The dtype of the numbers, one that `LazyTensor.cast` accepts.
        config: The content of `config.json`; None reads it beside the checkpoint.

    Returns:
        A view with the names of a plain checkpoint, in the same order: a weight takes the place of the first tensor
        that it is stored in, and scales, zero points and the like are gone. Others stay as they are.

    Raises:
        DtypeError: If there is no such dtype, or the blocks of a tensor have no numbers.
        FormatError: If a part of a quantized tensor is missing or does not fit; or a configuration is no JSON object.
        UnsupportedError: If a layout is recognized, and its numbers are not known here.
        TransportError: If a file cannot be read.
    """
    return with_numbers(tensors, dtype, config).dequantize(dtype)
