"""Saving and loading nets: everything that was asked for, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from skorch.exceptions import NotInitializedError
from skorch.history import History

from tensorkeep.errors import StateDictMismatchError
from tensorkeep.integrations.skorch._files import Target, write_files
from tensorkeep.integrations.skorch._names import CHECKPOINT, HISTORY, TRAINING
from tensorkeep.integrations.skorch._parts import component, components, states_of
from tensorkeep.integrations.skorch._sets import SavedNet
from tensorkeep.integrations.skorch._training import (
    Resumption,
    capture_training,
    generators_of,
    recall_best_scores,
    rng_for_here,
    set_trainable,
    training_of,
)
from tensorkeep.torch import restore

_NO_COMPONENTS: Final = {CHECKPOINT, HISTORY, TRAINING}


def check_initialized(net: Any, action: str) -> None:
    """Refuse a net that is not initialized."""
    if not net.initialized_:
        raise NotInitializedError(
            f"Cannot {action} the state of a net that is not initialized: call .initialize() or .fit(...) first"
        )


def wait_for_others(net: Any) -> None:
    """Wait for all processes that train a net, since the main one may be saving."""
    accelerator = getattr(net, "accelerator", None)
    if accelerator is not None:
        accelerator.wait_for_everyone()


def save_net(net: Any, targets: Mapping[str, Target], *, saver: Any = None, durable: bool = True) -> None:
    """Write parts of a net to their files, all of them or none; of several processes, the main one writes."""
    save_parts(net, targets, partial(write_files, targets=targets, durable=durable), saver=saver)


def save_parts(
    net: Any, parts: Collection[str], write: Callable[[Mapping[str, Any], list[Any]], object], *, saver: Any = None
) -> None:
    """Pass the states of parts of a net, and its history, to a function; of several processes, in the main one."""
    wait_for_others(net)
    if not _is_main(net):
        return
    is_whole = CHECKPOINT in parts
    named = [part for part in parts if part not in _NO_COMPONENTS]
    states = states_of(net, dict.fromkeys([*(components(net) if is_whole else ()), *named]))
    history = net.history.to_list()
    if is_whole or HISTORY in parts:
        states[HISTORY] = history
    if is_whole or TRAINING in parts:
        states[TRAINING] = capture_training(net, saver)
    if is_whole:
        states[CHECKPOINT] = dict(states)
    write(states, history)


def restore_net(net: Any, saved: SavedNet, *, strict: bool, training: bool) -> Resumption | None:
    """Load what was saved of a net. Everything is checked before anything is changed."""
    parts = _for_net(net, saved, strict=strict)
    labels = {part: f"{part} ({saved.paths[part]})" for part in parts}
    states = {labels[part]: state for part, state in parts.items()}
    targets = {labels[part]: component(net, part) for part in parts}
    history = _history_of(saved) if HISTORY in saved.parts else None
    extra = training_of(saved.parts[TRAINING], saved.paths[TRAINING]) if TRAINING in saved.parts else None
    resumption = None
    if training and extra is not None:
        resumption = Resumption(net, extra, saved.paths[TRAINING], has_history=history is not None)
        generators = generators_of(net)
        targets |= {name: generators[name] for name in extra.generators if name in generators}
        states |= {**extra.generators, "rng": rng_for_here(extra.rng)} if _is_main(net) else extra.generators
    restore(states, rng="rng" in states, strict=strict, **targets)
    if history is not None:
        net.history = history
        recall_best_scores(net)
    if extra is not None and extra.classes is not None:
        net.classes_inferred_ = extra.classes
    if extra is not None and resumption is not None:
        set_trainable(net, extra.trainable)
        resumption.note_options(net)
    return resumption


def _for_net(net: Any, saved: SavedNet, *, strict: bool) -> dict[str, Any]:
    """Return the states of the components of a net, in its order, so that modules are checked first."""
    own = components(net)
    parts = {part: saved.parts[part] for part in (*own, *saved.parts) if part in saved.parts.keys() - _NO_COMPONENTS}
    if not saved.is_whole:
        return parts
    missing, unexpected = [part for part in own if part not in parts], [part for part in parts if part not in own]
    if strict and (missing or unexpected):
        raise StateDictMismatchError(
            "the saved net has other parts than this one",
            path=next(iter(saved.paths.values()), None),
            expected=", ".join(own),
            found=", ".join(parts),
            hint="Nothing was changed; strict=False loads the parts that both have",
            missing=missing,
            unexpected=unexpected,
        )
    return {part: state for part, state in parts.items() if part in own}


def _history_of(saved: SavedNet) -> History:
    rows = saved.parts[HISTORY]
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise StateDictMismatchError(
            "not the history of a net",
            path=saved.paths[HISTORY],
            expected="a list of dicts",
            found=type(rows).__name__,
            hint="Nothing was changed",
        )
    return History(rows)


def _is_main(net: Any) -> bool:
    accelerator = getattr(net, "accelerator", None)
    return accelerator is None or bool(accelerator.is_main_process)
