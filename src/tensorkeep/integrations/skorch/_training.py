"""What a run needs to continue besides the parts of its net: generators, callbacks, frozen parameters."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import torch
from skorch.callbacks import BatchScoring, EarlyStopping, EpochScoring, LRScheduler, PassthroughScoring
from torch import nn

from tensorkeep.errors import StateDictMismatchError
from tensorkeep.torch import capture, restore
from tensorkeep.training import GENERATORS, check_fit

_SCORES: Final = (BatchScoring, EpochScoring, PassthroughScoring)
_Kind = TypeVar("_Kind")


class Training(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run needs to continue as if it had never stopped, besides the parts of its net.

    Attributes:
        rng: States of the global random generators, by library or device.
        generators: Random generators passed to the net, by `net.` and the name of the argument.
        callbacks: Name of a callback to its state.
        behind: Names of callbacks that had not yet seen the end of the epoch.
        trainable: Name of a module to whether each parameter is trained, in their order.
        classes: The classes that a classifier has seen; None for other nets.
    """

    rng: dict[str, Any] = {}
    generators: dict[str, Any] = {}
    callbacks: dict[str, dict[str, Any]] = {}
    behind: list[str] = []
    trainable: dict[str, list[bool]] = {}
    classes: Any = None


def capture_training(net: Any, saver: Any = None) -> dict[str, Any]:
    """Gather the fields of `Training`."""
    callbacks = _stateful(net)
    generators = generators_of(net)
    captured = capture(**generators)
    classes = getattr(net, "classes_inferred_", None)
    training = Training(
        rng=captured["rng"],
        generators={name: captured[name] for name in generators},
        callbacks={name: callback.state_dict() for name, callback in callbacks.items()},
        behind=[name for name in _names_behind(net, saver) if name in callbacks],
        trainable={name: [p.requires_grad for p in module.parameters()] for name, module in _modules(net).items()},
        classes=None if classes is None else np.asarray(classes),
    )
    return msgspec.structs.asdict(training)


def training_of(saved: Any, path: str) -> Training:
    """Check and convert what `capture_training` returned."""
    return _converted(saved, Training, "not the state of a training", path)


def _converted(saved: Any, kind: type[_Kind], message: str, path: str) -> _Kind:
    try:
        return msgspec.convert(saved, kind)
    except msgspec.ValidationError as error:
        raise StateDictMismatchError(message, path=path, found=str(error), hint="Nothing was changed") from None


def generators_of(net: Any) -> dict[str, Any]:
    """Return the random generators passed to a net, by `net.` and the name of the argument."""
    arguments = net.get_params(deep=False).items()
    return {f"net.{name}": value for name, value in arguments if isinstance(value, GENERATORS)}


def rng_for_here(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the states of the global generators, except for devices that this machine lacks."""
    is_here = {
        "cuda": torch.cuda.device_count() >= len(saved.get("cuda", ())),
        "mps": torch.backends.mps.is_available(),
    }
    return {name: state for name, state in saved.items() if is_here.get(name, True)}


def set_trainable(net: Any, saved: Mapping[str, list[bool]]) -> None:
    """Freeze the parameters that were frozen, and no others."""
    for name, module in _modules(net).items():
        for parameter, is_trainable in zip(module.parameters(), saved.get(name, ()), strict=False):
            parameter.requires_grad_(is_trainable)


class Resumption:
    """States of callbacks, kept until all callbacks have been started, since starting resets them."""

    def __init__(self, net: Any, training: Training, path: str, *, has_history: bool) -> None:
        self._states = training.callbacks
        self._behind = set(training.behind)
        self._path = path
        self._options: dict[str, list[dict[str, Any]]] = {}
        for name, callback in net.callbacks_:
            if name in self._states:
                _check(callback, self._states[name], f"the state of callback {name}", path)
        for name, target in _stateful(net).items():
            if name in self._states:
                check_fit(target, self._states[name], f"callback {name} ({path})")
        if self._behind and not has_history:
            raise StateDictMismatchError(
                f"{', '.join(training.behind)} had not seen the end of the epoch, and needs the history to continue",
                path=path,
                hint="Nothing was changed; save the history too, or put Checkpoint after these callbacks",
            )
        left_out = self._states.keys() - {name for name, _ in net.callbacks_}
        if left_out:
            warnings.warn(
                f"{path} has the state of {', '.join(sorted(left_out))}, but the net has no callback of that name",
                stacklevel=5,
            )

    def note_options(self, net: Any) -> None:
        """Remember the optimizers' settings, such as learning rates: schedules change them when they start."""
        self._options = {
            name: [_without_parameters(group) for group in optimizer.param_groups]
            for name, optimizer in _optimizers(net).items()
        }

    def finish(self, net: Any, **datasets: Any) -> None:
        """Load the states of callbacks, once all have been started and the history has a row for the new epoch.

        Callbacks that had not seen the end of the saved epoch see it now.
        """
        targets = {name: target for name, target in _stateful(net).items() if name in self._states}
        labels = {name: f"callback {name} ({self._path})" for name in targets}
        states = {labels[name]: self._states[name] for name in targets}
        restore(states, rng=False, **{labels[name]: target for name, target in targets.items()})
        if any(isinstance(target, _Schedule) for target in targets.values()):
            for name, optimizer in _optimizers(net).items():
                for group, options in zip(optimizer.param_groups, self._options[name], strict=True):
                    group.update(options)
        late = [callback for name, callback in net.callbacks_ if name in self._behind & targets.keys()]
        if late:
            new_epoch = net.history.pop()  # they expect the finished epoch to be the last
            for callback in late:
                callback.on_epoch_end(net, **datasets)
            net.history.append(new_epoch)


def recall_best_scores(net: Any) -> None:
    """Set the best score of scoring callbacks, since not all of them take it from the history."""
    for _, callback in getattr(net, "callbacks_", ()):
        if isinstance(callback, _SCORES):
            name = getattr(callback, "name_", callback.name)
            best = (row[name] for row in reversed(net.history) if row.get(f"{name}_best") and name in row)
            callback.best_score_ = next(best, callback.best_score_)


class _ScheduleState(msgspec.Struct, frozen=True):
    policy: str
    scheduler: dict[str, Any]
    batch_idx: int


class _Schedule:
    """Gives a learning rate schedule a `state_dict`."""

    def __init__(self, callback: LRScheduler) -> None:
        self._callback = callback

    def state_dict(self) -> dict[str, Any]:
        schedule = self._callback.lr_scheduler_
        state = _ScheduleState(type(schedule).__name__, schedule.state_dict(), self._callback.batch_idx_)
        return msgspec.structs.asdict(state)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self._callback.lr_scheduler_.load_state_dict(saved["scheduler"])
        self._callback.batch_idx_ = saved["batch_idx"]


class _PatienceState(msgspec.Struct, frozen=True):
    misses_: int
    dynamic_threshold_: Any
    best_epoch_: Any
    best_model_weights_: dict[str, Any] | None


class _Patience:
    """Gives early stopping a `state_dict`."""

    def __init__(self, callback: EarlyStopping) -> None:
        self._callback = callback

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self._callback, name, None) for name in _PatienceState.__struct_fields__}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        if (
            saved["misses_"] < self._callback.patience
        ):  # otherwise it had already ended that training, and this is a new one
            vars(self._callback).update((name, saved[name]) for name in _PatienceState.__struct_fields__)


def _names_behind(net: Any, saver: Any) -> list[str]:
    """Return the names of the callbacks after one of them; none if it is not in the net."""
    places = [place for place, (_, callback) in enumerate(net.callbacks_) if callback is saver]
    return [name for name, _ in net.callbacks_[places[0] + 1 :]] if places else []


def _stateful(net: Any) -> dict[str, Any]:
    """Return the callbacks of a net that have a state, by name."""
    found: dict[str, Any] = {}
    for name, callback in net.callbacks_:
        if isinstance(callback, LRScheduler):
            if hasattr(getattr(callback, "lr_scheduler_", None), "state_dict"):
                found[name] = _Schedule(callback)
        elif isinstance(callback, EarlyStopping):
            found[name] = _Patience(callback)
        elif hasattr(callback, "state_dict") and hasattr(callback, "load_state_dict"):
            found[name] = callback
    return found


def _check(callback: Any, saved: Any, what: str, path: str) -> None:
    """Refuse the state of another kind of callback."""
    if isinstance(callback, EarlyStopping):
        _converted(saved, _PatienceState, f"{what} does not belong to early stopping", path)
    if not isinstance(callback, LRScheduler):
        return
    schedule = _converted(saved, _ScheduleState, f"{what} does not belong to a learning rate schedule", path)
    if isinstance(callback.policy_, type) and callback.policy_.__name__ != schedule.policy:
        raise StateDictMismatchError(
            f"{what} belongs to another learning rate schedule",
            path=path,
            expected=callback.policy_.__name__,
            found=schedule.policy,
            hint="Nothing was changed; to restart the schedule, give the callback another name",
        )


def _modules(net: Any) -> dict[str, nn.Module]:
    found = {name: getattr(net, f"{name}_", None) for name in (*net._modules, *net._criteria)}
    return {name: module for name, module in found.items() if isinstance(module, nn.Module)}


def _optimizers(net: Any) -> dict[str, Any]:
    found = {name: getattr(net, f"{name}_", None) for name in net._optimizers}
    return {name: optimizer for name, optimizer in found.items() if hasattr(optimizer, "param_groups")}


def _without_parameters(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: copy.deepcopy(value) for key, value in group.items() if key != "params"}
