"""`capture`: the state of a run, taken from its objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.utils.data import DataLoader

from tensorkeep.errors import StateError
from tensorkeep.training._generators import GENERATORS, capture_generator, capture_rng
from tensorkeep.training._modules import module_state


def capture(
    *,
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    scaler: Any = None,
    rng: bool = True,
    **extra: Any,
) -> dict[str, Any]:
    """Gather everything that a training run needs to continue, as nested data that every save function accepts.

        state = capture(model=model, optimizer=optimizer, scheduler=scheduler, step=500)
        tensorkeep.save(state, "step-500.safetensors")

    Tensors are the run's own, not copies: save the state before training continues, or keep `copy.deepcopy` of it.
    `save_async` copies it first.

    Each object may also be a dict, list or tuple of several. A model has the same names with and without a wrapper
    (`torch.compile`, `DataParallel`, `DistributedDataParallel`).

    Args:
        model: The model that is trained.
        optimizer: Its optimizer.
        scheduler: The learning rate scheduler. Functions that it was given, such as those of `LambdaLR`, are not
            data: torch leaves them out, and the scheduler that is restored keeps its own.
        scaler: The gradient scaler, such as `torch.amp.GradScaler`.
        rng: Whether to include the states of the global random generators of Python, NumPy and torch (on all devices
            in use). They belong to this process: a run of several processes has different ones in each.
        **extra: Anything else by name. Data, such as `step=500`, is included unchanged; a random generator as a copy;
            an object with `state_dict()`, such as a data loader or an average of weights, by that.

    Returns:
        A dict of part name to state, with a key for each argument that was given, and `"rng"`.

    Raises:
        StateError: If a model, optimizer, scheduler or scaler has no `state_dict()`, or a `DataLoader` without one
            is passed. Values that are not data are refused later, when the state is saved.

    Examples:
        >>> model = torch.nn.Linear(2, 2)
        >>> optimizer = torch.optim.AdamW(model.parameters())
        >>> state = capture(model=model, optimizer=optimizer, step=500)
        >>> tensorkeep.save(state, "step-500.safetensors")
    """
    objects = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
    state = {part: _state_of(value, part) for part, value in objects.items() if value is not None}
    if rng:
        state["rng"] = capture_rng()
    return state | {name: _state_of_extra(value) for name, value in extra.items()}


def _state_of(value: Any, path: str) -> Any:
    if _has_state(value):
        return _state_dict(value)
    if isinstance(value, Mapping):
        return {key: _state_of(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_state_of(item, f"{path}.{place}") for place, item in enumerate(value)]
    raise StateError(
        f"{path!r} has no state to capture",
        expected="an object with state_dict(), or a dict or list of such",
        found=f"{type(value).__module__}.{type(value).__qualname__}",
    )


def _state_of_extra(value: Any) -> Any:
    if isinstance(value, GENERATORS):
        return capture_generator(value)
    if isinstance(value, DataLoader) and not _has_state(value):
        raise StateError(
            "a DataLoader has no state to capture",
            hint="Pass the generator that it was created with: DataLoader.generator",
        )
    return _state_dict(value) if _has_state(value) else value


def _has_state(value: Any) -> bool:
    return hasattr(value, "state_dict") and not isinstance(value, type)


def _state_dict(value: Any) -> Any:
    return module_state(value) if isinstance(value, nn.Module) else value.state_dict()
