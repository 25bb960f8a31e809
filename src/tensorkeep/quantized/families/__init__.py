"""The ways to store quantized tensors, a file for each family: how to recognize it, and what its numbers are. Pure.

- `_base`: `Layout`, their interface.
- `_gptq`: AutoGPTQ and GPTQModel.
- `_awq`: AutoAWQ.
- `_packed`: compressed-tensors' packed integers.
- `_scaled`: F8 and I8 with scales, of compressed-tensors, ModelOpt, DeepSeek and LLM.int8().
- `_nvfp4`: NVFP4 of compressed-tensors and ModelOpt.
- `_mxfp4`: MXFP4 of compressed-tensors and gpt-oss.
- `_bitsandbytes`: NF4 and FP4.
- `_torchao`: torchao's classes.
- `_registry`: `LAYOUTS`.
"""

from tensorkeep.quantized.families._base import SCALES, Layout, Take, beside
from tensorkeep.quantized.families._registry import BY_DTYPE, BY_ENDING, BY_NAME

__all__ = ["BY_DTYPE", "BY_ENDING", "BY_NAME", "SCALES", "Layout", "Take", "beside"]
