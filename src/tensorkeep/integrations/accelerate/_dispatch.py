"""Loading a checkpoint into a model whose modules are on several devices, or stay on the disk until used."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import torch
from accelerate import dispatch_model
from accelerate.utils import (
    check_device_map,
    get_balanced_memory,
    infer_auto_device_map,
)
from torch import nn

from tensorkeep.checkpoint import open_checkpoint
from tensorkeep.checkpoint import verify as verify_checkpoint
from tensorkeep.errors import IntegrityError, StateDictMismatchError, UnsupportedError
from tensorkeep.integrations.accelerate._match import cast_to_model, check_ties, match, torch_dtype_of
from tensorkeep.integrations.accelerate._offload import OffloadedWeights
from tensorkeep.integrations.accelerate._place import ON_DISK, check_nesting, device_of, main_device, parts_of, place
from tensorkeep.kinds import refuse
from tensorkeep.models import load_into
from tensorkeep.tensors import LazyTensors

Source: TypeAlias = "str | os.PathLike[str] | LazyTensors"
DeviceMap: TypeAlias = Mapping[str, Any]
Dtype: TypeAlias = "str | torch.dtype | None"

_STRATEGIES: Final = ("auto", "balanced", "balanced_low_0", "sequential")
"""Values of `device_map` that let accelerate find a map."""


def load_checkpoint_and_dispatch(
    model: nn.Module,
    checkpoint: Source,
    device_map: DeviceMap | str | None = None,
    max_memory: Mapping[Any, int | str] | None = None,
    no_split_module_classes: Sequence[str] | None = None,
    offload_folder: Any = None,  # noqa: ARG001 - accelerate has it
    offload_buffers: bool = False,
    dtype: Dtype = None,
    offload_state_dict: Any = None,  # noqa: ARG001 - accelerate has it
    skip_keys: str | Sequence[str] | None = None,
    preload_module_classes: Sequence[str] | None = None,
    force_hooks: bool = False,
    strict: bool = True,
    full_state_dict: bool = True,
    broadcast_from_rank0: bool = False,
    *,
    verify: bool = False,
) -> nn.Module:
    """Load a checkpoint into a model, distribute its modules over devices, and attach the hooks that let it run.

        with init_empty_weights():
            model = Model()
        model = load_checkpoint_and_dispatch(model, "checkpoint", device_map="auto")

    It takes the arguments of accelerate's function of this name, with two differences. Names that only the model or
    only the checkpoint has are an error, unless `strict` is False. Weights that the map leaves on the disk are read
    from the checkpoint itself each time they are used, so nothing is copied, and `offload_folder` is not needed.

    Args:
        model: The model; on device meta it takes no memory until it is loaded.
        checkpoint: A directory, a shard index or a file, of safetensors or of pickles, which are never run; or an
            open checkpoint or a view of one. Files with weights that stay on the disk must not change.
        device_map: Module name to device, `"cpu"` or `"disk"`; or `"auto"`, `"balanced"`, `"balanced_low_0"` or
            `"sequential"` to let accelerate find a map; None to load the model where it is.
        max_memory: Device to the bytes that may be used there, for finding a map.
        no_split_module_classes: Names of classes whose modules must not be split over devices, for finding a map.
        offload_folder: Ignored.
        offload_buffers: Whether buffers of modules on the disk or the CPU also stay there between calls.
        dtype: The dtype of all floating-point tensors; None for the dtype of each in the model.
        offload_state_dict: Ignored.
        skip_keys: Keyword arguments of modules that are not moved to the module's device.
        preload_module_classes: Names of classes whose modules load the weights of all submodules when called.
        force_hooks: Whether to attach hooks even if everything is on one device.
        strict: Whether to refuse names that only one side has, and tied weights that were saved with different
            values.
        full_state_dict: Only True is supported.
        broadcast_from_rank0: Only False is supported: each process reads for itself.
        verify: Whether to check every byte against its digest before the model is changed, and weights on the disk
            again each time they are read. Otherwise only headers and the shard index are checked.

    Returns:
        The model.

    Raises:
        StateDictMismatchError: If names, shapes or tied weights do not fit. The model is unchanged.
        IntegrityError: If the checkpoint is incomplete, or `verify` finds damage or a tensor without a digest.
        UnsupportedError: If an argument is not supported.
        ValueError: If the device map leaves out a module.
        SourceMissingError: If there is no such checkpoint, or a shard is missing.
        FormatError: If it is malformed.
        UnsafeError: If a pickle names functions that serve only to do harm.
        DtypeError: If a tensor cannot be cast to the model's dtype.
        TransportError: If it cannot be read.
    """
    if isinstance(device_map, str):
        device_map = _inferred(model, device_map, max_memory, no_split_module_classes, dtype, offload_buffers)
    check_nesting(device_map or {})
    offloaded = load_checkpoint_in_model(
        model,
        checkpoint,
        device_map,
        dtype=dtype,
        offload_buffers=offload_buffers,
        strict=strict,
        full_state_dict=full_state_dict,
        broadcast_from_rank0=broadcast_from_rank0,
        verify=verify,
    )
    if device_map is None:
        return model
    dispatched: nn.Module = _dispatched(
        model,
        device_map,
        offloaded,
        offload_buffers=offload_buffers,
        skip_keys=skip_keys,
        preload_module_classes=preload_module_classes,
        force_hooks=force_hooks,
    )
    return dispatched


def load_checkpoint_in_model(
    model: nn.Module,
    checkpoint: Source,
    device_map: DeviceMap | None = None,
    offload_folder: Any = None,  # noqa: ARG001 - accelerate has it
    dtype: Dtype = None,
    offload_state_dict: Any = False,  # noqa: ARG001 - accelerate has it
    offload_buffers: bool = False,
    keep_in_fp32_modules: Sequence[str] | None = None,
    offload_8bit_bnb: bool = False,
    strict: bool = True,
    full_state_dict: bool = True,
    broadcast_from_rank0: bool = False,
    *,
    verify: bool = False,
) -> OffloadedWeights:
    """Load a checkpoint into a model and distribute its modules over devices, without attaching hooks.

    Args:
        model: The model; on device meta it takes no memory until it is loaded.
        checkpoint: A directory, a shard index or a file, of safetensors or of pickles, which are never run; or an
            open checkpoint or a view of one. Files with weights that stay on the disk must not change.
        device_map: Module name to device, `"cpu"` or `"disk"`; None to load the model where it is.
        offload_folder: Ignored.
        dtype: The dtype of all floating-point tensors; None for the dtype of each in the model.
        offload_state_dict: Ignored.
        offload_buffers: Whether buffers of modules on the disk also stay there.
        keep_in_fp32_modules: Names of modules that stay float32 if `dtype` is float16.
        offload_8bit_bnb: Only False is supported.
        strict: Whether to refuse names that only one side has, and tied weights that were saved with different
            values.
        full_state_dict: Only True is supported.
        broadcast_from_rank0: Only False is supported: each process reads for itself.
        verify: Whether to check every byte against its digest before the model is changed, and weights on the disk
            again each time they are read.

    Returns:
        The weights that stay on the disk, for
        `dispatch_model(model, device_map, state_dict=weights, offload_index={})`.

    Raises:
        StateDictMismatchError: If names, shapes or tied weights do not fit. The model is unchanged.
        UnsupportedError: If an argument is not supported.
        ValueError: If the device map leaves out a module.
        TensorkeepError: If the checkpoint cannot be read, as in `load_checkpoint_and_dispatch`.
    """
    if offload_8bit_bnb or broadcast_from_rank0 or not full_state_dict:
        raise UnsupportedError(
            "weights are not quantized or sent to other processes while they are loaded",
            expected="offload_8bit_bnb=False, broadcast_from_rank0=False and full_state_dict=True",
        )
    if device_map is not None:
        check_device_map(model, device_map)
    tensors = checkpoint if isinstance(checkpoint, LazyTensors) else _opened(checkpoint)
    if verify:
        _check_bytes(tensors.path)
    wanted = cast_to_model(tensors, model, _torch_dtype(dtype), keep_in_fp32_modules or ())
    if device_map is None:
        is_empty = any(tensor.is_meta for tensor in model.state_dict().values() if isinstance(tensor, torch.Tensor))
        _load_whole(model, wanted, strict=strict, assign=is_empty)
        return OffloadedWeights({})
    found = match(model, wanted, strict=strict)
    stored = {name: tensors[lazy.name] for name, lazy in found.items()}
    if strict:
        check_ties(model, stored, tensors.path)
    parts = parts_of(model, found, device_map, offload_buffers=offload_buffers)
    place(model, parts, tensors.path)
    dtypes = {name: torch_dtype_of(lazy) for name, lazy in parts.get(ON_DISK, {}).items()}
    return OffloadedWeights({name: stored[name] for name in dtypes}, dtypes, verify=verify)


def _opened(checkpoint: str | os.PathLike[str]) -> Any:
    return open_checkpoint(os.path.expanduser(os.fsdecode(checkpoint)), framework="torch")


def _load_whole(model: nn.Module, tensors: LazyTensors, *, strict: bool, assign: bool) -> None:
    try:
        load_into(model, tensors, strict=strict, assign=assign)
    except StateDictMismatchError as error:
        if error.mismatched:  # load_into suggests an argument that its callers here do not have
            error.hint = "Create the model with the shapes of the checkpoint"
        raise


def _check_bytes(path: str) -> None:
    report = verify_checkpoint(path)
    refuse(report.findings, path)
    if report.n_unprotected:
        raise IntegrityError(
            "not all tensors can be verified",
            path=path,
            expected="a digest of each tensor",
            found=f"{report.n_unprotected:,} tensors without one",
            hint="Leave out verify=True, or rewrite the checkpoint with tensorkeep.reshard",
        )


def _torch_dtype(dtype: Dtype) -> torch.dtype | None:
    if not isinstance(dtype, str):
        return dtype
    found = getattr(torch, dtype.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise UnsupportedError(f"torch has no dtype {dtype!r}", expected='one such as "bfloat16"')
    return found


def _inferred(
    model: nn.Module,
    way: str,
    max_memory: Mapping[Any, int | str] | None,
    no_split_module_classes: Sequence[str] | None,
    dtype: Dtype,
    offload_buffers: bool,
) -> DeviceMap:
    if way not in _STRATEGIES:
        raise UnsupportedError(f"device_map={way!r} is invalid", expected=" or ".join(_STRATEGIES))
    if way != "sequential":
        max_memory = get_balanced_memory(
            model,
            max_memory=max_memory,
            no_split_module_classes=no_split_module_classes,
            dtype=dtype,
            low_zero=way == "balanced_low_0",
        )
    device_map: DeviceMap = infer_auto_device_map(
        model,
        max_memory=max_memory,
        no_split_module_classes=no_split_module_classes,
        dtype=dtype,
        offload_buffers=offload_buffers,
    )
    return device_map


def _dispatched(model: nn.Module, device_map: DeviceMap, offloaded: OffloadedWeights, **hooks: Any) -> Any:
    """Attach accelerate's hooks, which read weights that are not in memory from the checkpoint."""
    device = main_device(device_map)
    if not offloaded:
        return dispatch_model(model, device_map, device, **hooks)
    in_memory = {name: value for name, value in model.state_dict().items() if device_of(name, device_map) == "cpu"}
    weights = ChainMap(in_memory, offloaded)  # type: ignore[arg-type]  # nothing is written to it
    return dispatch_model(model, device_map, device, state_dict=weights, offload_index={}, **hooks)
