"""`Accelerator` and `keep_safe`: a run whose state is saved and loaded completely or not at all, without pickles."""

from __future__ import annotations

from types import MethodType
from typing import Any, Final, TypeVar

import accelerate

from tensorkeep.errors import UnsupportedError
from tensorkeep.integrations.accelerate._load import load_state
from tensorkeep.integrations.accelerate._loaders import skip_first_batches
from tensorkeep.integrations.accelerate._processes import connect
from tensorkeep.integrations.accelerate._save import save_model, save_state

_METHODS = (save_state, load_state, save_model, skip_first_batches)

_ENGINES: Final = ("DEEPSPEED", "FSDP", "MEGATRON_LM", "XLA")
"""Engines that shard the state of a run, and save it in their own way."""

_DEVICES: Final = ("cpu", "cuda", "mps")
"""Devices whose random generators are saved."""

_Accelerator = TypeVar("_Accelerator", bound=accelerate.Accelerator)


class Accelerator(accelerate.Accelerator):
    """accelerate's `Accelerator`, with state that is saved completely or not at all, and without pickles.

        accelerator = Accelerator(project_dir="run")
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        accelerator.save_state("run/state")
        accelerator.load_state("run/state")

    It takes the arguments of that class. All processes of a run must create it.

    Raises:
        UnsupportedError: If the state of the run is sharded (FSDP, DeepSpeed, Megatron-LM, XLA, tensor or context
            parallelism), or its device is not a CPU, CUDA or MPS device.
    """

    save_state = save_state
    load_state = load_state
    save_model = save_model
    skip_first_batches = skip_first_batches

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Create an accelerator with the arguments of accelerate's `Accelerator`."""
        super().__init__(*arguments, **named)
        _refuse_unsupported(self)
        connect(self)


def keep_safe(accelerator: _Accelerator) -> _Accelerator:
    """Make an existing accelerator save and load as the `Accelerator` of this module does.

    Args:
        accelerator: The accelerator. Its methods `save_state`, `load_state`, `save_model` and `skip_first_batches`
            are replaced. All processes of a run must do this.

    Returns:
        The same object.

    Raises:
        UnsupportedError: If it is not an accelerator; or the state of the run is sharded (FSDP, DeepSpeed,
            Megatron-LM, XLA, tensor or context parallelism), or its device is not a CPU, CUDA or MPS device.
    """
    if not isinstance(accelerator, accelerate.Accelerator):
        raise UnsupportedError(
            "not an Accelerator",
            expected="an accelerate.Accelerator",
            found=f"{type(accelerator).__module__}.{type(accelerator).__qualname__}",
        )
    _refuse_unsupported(accelerator)
    connect(accelerator)
    for method in _METHODS:
        setattr(accelerator, method.__name__, MethodType(method, accelerator))
    return accelerator


def _refuse_unsupported(accelerator: Any) -> None:
    """Refuse runs that shard objects over processes."""
    engine = accelerator.distributed_type.value
    if engine in _ENGINES:
        raise UnsupportedError(
            f"the state of a run with {engine} is sharded, and is not gathered here",
            expected="a run on one device, or one in which each process has the whole model",
            found=engine,
            hint="Nothing was saved or loaded",
        )
    parallel = accelerator.parallelism_config
    if parallel is not None and (
        parallel.tp_enabled or parallel.cp_enabled or parallel.sp_enabled or parallel.dp_shard_enabled
    ):
        raise UnsupportedError(
            "the tensors of this run are sharded over processes, and are not gathered here",
            expected="a run in which each process has the whole model",
            found=str(parallel),
            hint="Nothing was saved or loaded",
        )
    if accelerator.device.type not in _DEVICES:
        raise UnsupportedError(
            "the random generators of this device cannot be saved, so a run could not continue exactly",
            expected=", ".join(_DEVICES),
            found=accelerator.device.type,
        )
