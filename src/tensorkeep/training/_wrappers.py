"""Optimizers and schedulers that libraries wrap, such as those that accelerate prepares: what is in the wrapper.

What is known of torch's own classes holds for what they wrap, too. A wrapper that has a state of its own is left as
it is.
"""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


def bare_optimizer(optimizer: Optimizer) -> Optimizer:
    """Return the optimizer whose state and groups a wrapper shows as its own; without a wrapper, itself."""
    inner = getattr(optimizer, "optimizer", None)
    if not isinstance(inner, Optimizer) or inner is optimizer:
        return optimizer
    shows_it = optimizer.state is inner.state and optimizer.param_groups is inner.param_groups
    return bare_optimizer(inner) if shows_it else optimizer


def bare_scheduler(scheduler: Any) -> Any:
    """Return the scheduler of torch whose state a wrapper gives as its own; without a wrapper, itself."""
    inner = getattr(scheduler, "scheduler", None)
    if isinstance(scheduler, LRScheduler) or not isinstance(inner, LRScheduler):
        return scheduler
    return inner if scheduler.state_dict().keys() == inner.state_dict().keys() else scheduler
