"""Loading a state into an object in two steps: check, and act once everything else fits too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from tensorkeep.errors import StateDictMismatchError, StateError
from tensorkeep.runs import Action, pairs, refuse_placeholders
from tensorkeep.training._generators import GENERATORS, prepare_generator
from tensorkeep.training._memory import own_memory
from tensorkeep.training._modules import check_module, load_module
from tensorkeep.training._optimizers import check_optimizer, load_optimizer
from tensorkeep.training._schedulers import check_scheduler


def check_fit(target: Any, saved: Any, part: str) -> None:
    """Check that a state fits an object that something else will load it into; nothing is changed."""
    refuse_placeholders(saved, part)
    for _ in prepare(target, saved, part, strict=True):
        pass


def prepare(target: Any, saved: Any, part: str, *, strict: bool) -> Iterator[Action]:
    """Check a state, and yield the actions that load it into an object; nothing changes before they run."""
    if isinstance(target, nn.Module):
        check_module(target, saved, part, strict=strict)
        yield partial(load_module, target, saved, strict=strict)
    elif isinstance(target, torch.optim.Optimizer):
        check_optimizer(target, saved, part, strict=strict)
        yield partial(load_optimizer, target, saved, strict=strict)
    elif isinstance(target, GENERATORS):
        yield prepare_generator(target, saved, part)
    elif hasattr(target, "load_state_dict"):
        _check_scaler(target, saved, part)
        if strict:
            check_scheduler(target, saved, part)
        yield lambda: target.load_state_dict(own_memory(saved))
    elif isinstance(target, Mapping | list | tuple):
        for item, state, place in pairs(target, saved, part):
            yield from prepare(item, state, place, strict=strict)
    else:
        raise StateError(
            f"cannot load a state into {part}",
            expected="an object with load_state_dict(), a random generator, or a dict or list of such",
            found=f"{type(target).__module__}.{type(target).__qualname__}",
            hint="Data is returned by restore: leave out the argument",
        )


def _check_scaler(target: Any, saved: Any, part: str) -> None:
    if isinstance(target, torch.amp.GradScaler) and target.is_enabled() and not saved:
        raise StateDictMismatchError(
            f"{part} was disabled when it was saved, and has no state for one that is enabled",
            hint="Nothing was changed; leave out the scaler, or disable it",
        )
