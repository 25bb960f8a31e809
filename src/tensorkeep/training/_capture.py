"""The state of a run, out of the objects that it consists of."""

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
    """Gather all that a training run needs to go on, as nested data that every save takes.

    Tensors are those of the run, not copies: save the state before training on, or keep `copy.deepcopy` of it.
    `save_async` copies it first.

        tensorkeep.save(capture(model=model, optimizer=optimizer, step=500), "step-500.safetensors")

    Each object may also be a dict, list or tuple of several. A model has the same names wrapped and not: by
    `torch.compile`, `DataParallel` or `DistributedDataParallel`.

    Args:
        model: What is trained.
        optimizer: What trains it.
        scheduler: What changes the learning rate. Functions that it was given, such as those of `LambdaLR`, are no
            data: torch leaves them out, and the scheduler that is restored has its own.
        scaler: What scales gradients, such as `torch.amp.GradScaler`.
        rng: Whether to take the states of the random generators of Python, NumPy and torch, of the latter on all
            devices in use. A run of several processes has such states in each.
        **extra: Anything else by name: data, such as `step=500`, as it is; of random generators a copy; of what has a
            `state_dict()`, such as a loader or an average of weights, that.

    Returns:
        Part name to state, for all that was given. Saving it raises `StateError` for what is no data.

    Raises:
        StateError: If a model, optimizer, scheduler or scaler has no `state_dict()`, or a `DataLoader` is passed that
            has none.
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
            hint="Pass the generator that it was made with: DataLoader.generator",
        )
    return _state_dict(value) if _has_state(value) else value


def _has_state(value: Any) -> bool:
    return hasattr(value, "state_dict") and not isinstance(value, type)


def _state_dict(value: Any) -> Any:
    return module_state(value) if isinstance(value, nn.Module) else value.state_dict()
