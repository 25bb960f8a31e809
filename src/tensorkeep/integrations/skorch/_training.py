"""What a run needs to go on, beside the parts of its net: chance, schedules, patience, and what is frozen."""

from __future__ import annotations

import copy
import random
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
from tensorkeep.training import check_fit

_Random: Final = random.Random  # noqa: S311 - whoever passes one knows what it is for
_GENERATORS: Final = (torch.Generator, np.random.Generator, np.random.RandomState, _Random)
_SCORES: Final = (BatchScoring, EpochScoring, PassthroughScoring)
_Kind = TypeVar("_Kind")


class Training(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a run needs to go on as if it had never stopped, beside the parts of its net.

    Attributes:
        rng: Library or device to the states of the random generators that everybody has.
        generators: `net.` and name of an argument to the random generator that the net was given there.
        callbacks: Name of a callback to its state.
        behind: Names of callbacks that had not seen the end of the epoch.
        trainable: Name of a module to whether each of its parameters is trained, in their order.
        classes: What a classifier has seen; None for other nets.
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
    """Return what `capture_training` gathered."""
    return _converted(saved, Training, "it is not the state of a training", path)


def _converted(saved: Any, kind: type[_Kind], message: str, path: str) -> _Kind:
    try:
        return msgspec.convert(saved, kind)
    except msgspec.ValidationError as error:
        raise StateDictMismatchError(message, path=path, found=str(error), hint="Nothing was changed") from None


def generators_of(net: Any) -> dict[str, Any]:
    """Return the random generators that a net was given as arguments, by `net.` and the names of these."""
    arguments = net.get_params(deep=False).items()
    return {f"net.{name}": value for name, value in arguments if isinstance(value, _GENERATORS)}


def rng_for_here(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the states of the generators that everybody has, without those of devices that are not here."""
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
    """The states of callbacks, kept until all of them have begun: each begins as if nothing had been before."""

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
                f"{', '.join(training.behind)} had not seen the end of the epoch, and needs the history to go on",
                path=path,
                hint="Nothing was changed; save the history too, or let Checkpoint stand behind these callbacks",
            )
        left_out = self._states.keys() - {name for name, _ in net.callbacks_}
        if left_out:
            warnings.warn(
                f"{path} has the state of {', '.join(sorted(left_out))}, and the net no callback of that name",
                stacklevel=5,
            )

    def note_options(self, net: Any) -> None:
        """Keep the learning rates and the like that optimizers have now: schedules that begin change them."""
        self._options = {
            name: [_without_parameters(group) for group in optimizer.param_groups]
            for name, optimizer in _optimizers(net).items()
        }

    def finish(self, net: Any, **datasets: Any) -> None:
        """Give callbacks their states, when all have begun to train and the history has a row for the new epoch.

        Those that had not seen the end of the epoch that was saved see it now.
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
            begun = net.history.pop()
            for callback in late:
                callback.on_epoch_end(net, **datasets)
            net.history.append(begun)


def recall_best_scores(net: Any) -> None:
    """Tell the callbacks that score what the best score was: not all of them look into the history."""
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
    """A learning rate schedule, as something with a state."""

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
    """Early stopping, as something with a state."""

    def __init__(self, callback: EarlyStopping) -> None:
        self._callback = callback

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self._callback, name, None) for name in _PatienceState.__struct_fields__}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        if saved["misses_"] < self._callback.patience:  # else it had ended that training, and this is another
            vars(self._callback).update((name, saved[name]) for name in _PatienceState.__struct_fields__)


def _names_behind(net: Any, saver: Any) -> list[str]:
    """Return the names of the callbacks that stand behind one; none if that is none of them."""
    places = [place for place, (_, callback) in enumerate(net.callbacks_) if callback is saver]
    return [name for name, _ in net.callbacks_[places[0] + 1 :]] if places else []


def _stateful(net: Any) -> dict[str, Any]:
    """Return what has a state of the callbacks of a net, by their names."""
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
    """Refuse the state of another callback."""
    if isinstance(callback, EarlyStopping):
        _converted(saved, _PatienceState, f"{what} is not that of early stopping", path)
    if not isinstance(callback, LRScheduler):
        return
    schedule = _converted(saved, _ScheduleState, f"{what} is not that of a learning rate schedule", path)
    if isinstance(callback.policy_, type) and callback.policy_.__name__ != schedule.policy:
        raise StateDictMismatchError(
            f"{what} is that of another learning rate schedule",
            path=path,
            expected=callback.policy_.__name__,
            found=schedule.policy,
            hint="Nothing was changed; give the callback another name to begin its schedule anew",
        )


def _modules(net: Any) -> dict[str, nn.Module]:
    found = {name: getattr(net, f"{name}_", None) for name in (*net._modules, *net._criteria)}
    return {name: module for name, module in found.items() if isinstance(module, nn.Module)}


def _optimizers(net: Any) -> dict[str, Any]:
    found = {name: getattr(net, f"{name}_", None) for name in net._optimizers}
    return {name: optimizer for name, optimizer in found.items() if hasattr(optimizer, "param_groups")}


def _without_parameters(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: copy.deepcopy(value) for key, value in group.items() if key != "params"}
