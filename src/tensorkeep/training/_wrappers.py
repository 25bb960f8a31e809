"""Optimizers and schedulers inside wrappers, such as the ones from accelerate.

Checks for torch's own classes then apply to the wrapped object. A wrapper with a state of its own is left alone.
"""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


def bare_optimizer(optimizer: Optimizer) -> Optimizer:
    """Return the optimizer whose state and groups a wrapper passes on, or the optimizer itself."""
    inner = getattr(optimizer, "optimizer", None)
    if not isinstance(inner, Optimizer) or inner is optimizer:
        return optimizer
    passes_on = optimizer.state is inner.state and optimizer.param_groups is inner.param_groups
    return bare_optimizer(inner) if passes_on else optimizer


def bare_scheduler(scheduler: Any) -> Any:
    """Return the torch scheduler whose state a wrapper passes on, or the scheduler itself."""
    inner = getattr(scheduler, "scheduler", None)
    if isinstance(scheduler, LRScheduler) or not isinstance(inner, LRScheduler):
        return scheduler
    return inner if scheduler.state_dict().keys() == inner.state_dict().keys() else scheduler
