"""Which runs of accelerate can be saved here: those in which each process has the whole of each object."""

from __future__ import annotations

from typing import Any, Final

from tensorkeep.errors import UnsupportedError

_ENGINES: Final = ("DEEPSPEED", "FSDP", "MEGATRON_LM", "XLA")
"""Kinds of runs whose states are in parts, and saved by the engine in its own way."""

_DEVICES: Final = ("cpu", "cuda", "mps")
"""Those whose random generators are saved."""


def refuse_unsupported(accelerator: Any) -> None:
    """Make sure that the state of a run can be saved as a whole."""
    engine = accelerator.distributed_type.value
    if engine in _ENGINES:
        raise UnsupportedError(
            f"the state of a run by {engine} is in parts, which are not gathered here",
            expected="a run on one device, or one in which each process has the whole model",
            found=engine,
            hint="Nothing was saved or loaded",
        )
    parallel = accelerator.parallelism_config
    if parallel is not None and (
        parallel.tp_enabled or parallel.cp_enabled or parallel.sp_enabled or parallel.dp_shard_enabled
    ):
        raise UnsupportedError(
            "the tensors of this run are spread over processes, and are not gathered here",
            expected="a run in which each process has the whole model",
            found=str(parallel),
            hint="Nothing was saved or loaded",
        )
    if accelerator.device.type not in _DEVICES:
        raise UnsupportedError(
            "the random generators of this device are not known here, and a run could not go on as it was",
            expected=", ".join(_DEVICES),
            found=accelerator.device.type,
        )
