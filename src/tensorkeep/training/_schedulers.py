"""States of torch's schedulers, checked before they are loaded: a scheduler itself accepts anything."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from torch.optim import lr_scheduler, swa_utils

from tensorkeep.errors import StateDictMismatchError
from tensorkeep.training._wrappers import bare_scheduler

_Scheduler = lr_scheduler.LRScheduler

_VARYING: Final = frozenset({
    *("optimizer", "last_epoch", "verbose", "base_lr", "base_momentum", "max_momentum", "swa_lr"),
    *("scale_fn", "scale_mode", "anneal_strategy"),
})
"""Arguments that a state has or lacks depending on other arguments, or on torch's version."""


def _settings(keys: Iterable[Any]) -> set[str]:
    """Return names of arguments for the keys of a state that derive from them: `lr_lambda` for `lr_lambdas`."""
    return {key.removeprefix("_").removesuffix("s") for key in keys if isinstance(key, str)}


_SETTINGS: Final = (
    _settings(
        name
        for cls in (*vars(lr_scheduler).values(), swa_utils.SWALR)
        if inspect.isclass(cls) and issubclass(cls, _Scheduler)
        for name in inspect.signature(cls).parameters
    )
    - _VARYING
)
"""Settings that distinguish torch's schedulers."""


def check_scheduler(scheduler: Any, saved: Any, part: str) -> None:
    """Refuse the state of another kind of scheduler, if the scheduler is one of torch's own."""
    scheduler = bare_scheduler(scheduler)
    if not isinstance(scheduler, _Scheduler) or not type(scheduler).__module__.startswith("torch.optim."):
        return
    own, state = scheduler.state_dict(), saved if isinstance(saved, Mapping) else {}
    expected, found = _SETTINGS & _settings(own), _SETTINGS & _settings(state)
    if expected != found:
        raise StateDictMismatchError(
            f"{part} is the state of another kind of scheduler than {type(scheduler).__name__}",
            expected=_listed(own, expected),
            found=_listed(state, found),
            hint="Nothing was changed. Create the scheduler as it was for the checkpoint;"
            " strict=False loads what torch accepts",
        )
    _check_inner(scheduler, state, part)


def _check_inner(scheduler: Any, saved: Mapping[str, Any], part: str) -> None:
    """Check the states of the schedulers that a scheduler consists of."""
    inner, states = getattr(scheduler, "_schedulers", None), saved.get("_schedulers")
    if inner is None:
        return
    if not isinstance(states, list | tuple) or len(states) != len(inner):
        raise StateDictMismatchError(
            f"{part} is the state of another {type(scheduler).__name__}",
            expected=f"states of {len(inner)} schedulers",
            found=f"{len(states)}" if isinstance(states, list | tuple) else type(states).__name__,
            hint="Nothing was changed. Create the scheduler as it was for the checkpoint",
        )
    for number, (one, state) in enumerate(zip(inner, states, strict=True)):
        check_scheduler(one, state, f"{part}.{number}")


def _listed(state: Iterable[Any], settings: Collection[str]) -> str:
    return ", ".join(sorted(key for key in state if not _settings([key]).isdisjoint(settings))) or "no settings"
