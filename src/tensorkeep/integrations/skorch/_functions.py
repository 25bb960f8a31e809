"""What `save_params` and `load_params` of a net do, with optimizers, safe files, and all or nothing."""

from __future__ import annotations

import os
from typing import Any

from tensorkeep.integrations.skorch._checkpoint import Checkpoint, refuse_pickle
from tensorkeep.integrations.skorch._files import Target, is_path, place_of, read_file
from tensorkeep.integrations.skorch._names import CHECKPOINT, HISTORY, TRAINING, part_of
from tensorkeep.integrations.skorch._nets import check_initialized, restore_net, save_net, wait_for_others
from tensorkeep.integrations.skorch._sets import SavedNet
from tensorkeep.integrations.skorch._train_end import TrainEndCheckpoint, checkpoint_of
from tensorkeep.state import Classes, classes_by_name


def save_params(
    net: Any,
    f_params: Target | None = None,
    f_optimizer: Target | None = None,
    f_criterion: Target | None = None,
    f_history: Target | None = None,
    use_safetensors: bool = True,  # noqa: ARG001 - skorch has it
    *,
    f_checkpoint: Target | None = None,
    f_training: Target | None = None,
    durable: bool = True,
    **kwargs: Target | None,
) -> None:
    """Save parts of a net: what `net.save_params` does, with optimizers, and complete or not at all.

        save_params(net, f_params="params.safetensors", f_optimizer="optimizer.safetensors")
        save_params(net, f_checkpoint="net.safetensors")

    Args:
        net: The net, initialized.
        f_params: Path or binary file object that the state of `net.module_` goes to; None to leave it out. So for
            all `f_` arguments.
        f_optimizer: That of `net.optimizer_`.
        f_criterion: That of `net.criterion_`.
        f_history: The history, as JSON.
        use_safetensors: Of no effect: files are safetensors.
        f_checkpoint: Everything, in one file: all modules, criteria and optimizers, the history, and what
            `f_training` gets.
        f_training: Random generators, and the states of callbacks that have one, such as learning rate schedules.
        durable: Whether to wait until the disk has everything (fsync), so that not even a power cut loses it.
        **kwargs: `f_mymodule` for `net.mymodule_`, and so on.

    Raises:
        NotInitializedError: If the net is not initialized.
        StateError: If the net has no such part, or a state holds what is no data.
        UnsupportedError: If two parts have one path, or a pickle is asked for.
        TypeError: If there is no such argument.
        TransportError: If something cannot be written. The files are then as they were.
    """
    targets = _targets(
        "save_params",
        f_params=f_params,
        f_optimizer=f_optimizer,
        f_criterion=f_criterion,
        f_history=f_history,
        f_training=f_training,
        f_checkpoint=f_checkpoint,
        **kwargs,
    )
    refuse_pickle(targets.get("pickle"))
    if not targets:
        _say(net, "Nothing to save")
        return
    check_initialized(net, "save")
    save_net(net, targets, durable=durable)


def load_params(
    net: Any,
    f_params: Target | None = None,
    f_optimizer: Target | None = None,
    f_criterion: Target | None = None,
    f_history: Target | None = None,
    checkpoint: Checkpoint | TrainEndCheckpoint | None = None,
    use_safetensors: bool = True,  # noqa: ARG001 - skorch has it
    *,
    f_checkpoint: Target | None = None,
    f_training: Target | None = None,
    f_pickle: Target | None = None,
    strict: bool = True,
    training: bool = False,
    classes: Classes = (),
    **kwargs: Target | None,
) -> None:
    """Load parts of a net: what `net.load_params` does, from safe files and from those that skorch wrote.

    A file is known by its content: safetensors, what `torch.save` wrote, or a net that was pickled whole. Nothing of
    a pickle is run. A part may also be taken from a file that has all: `f_params="net.safetensors"` takes the module.
    Everything is read and checked before anything is changed.

    Args:
        net: The net. With `checkpoint`, `f_checkpoint` or `f_pickle` it is initialized if it is not.
        f_params: Path or binary file object with the state of `net.module_`; None to leave it as it is. So for all
            `f_` arguments.
        f_optimizer: That of `net.optimizer_`.
        f_criterion: That of `net.criterion_`.
        f_history: The history.
        checkpoint: A callback, all parts of which are loaded that are not named.
        use_safetensors: Of no effect.
        f_checkpoint: One file with everything.
        f_training: Random generators, and which parameters are frozen. Callbacks get their states from
            `LoadInitState`, since each training begins with new ones.
        f_pickle: A net that was pickled whole: the states of its modules, criteria and optimizers, its history and
            its classes are taken.
        strict: Whether names that only the net or only the file has are an error. If not, those are loaded that both
            have.
        training: Whether what `f_training` names is brought back from `checkpoint` and `f_checkpoint` too.
        classes: Dataclasses, enums and named tuples that may be made again where states have them.
        **kwargs: `f_mymodule` for `net.mymodule_`, and so on.

    Raises:
        NotInitializedError: If the net is not initialized.
        StateDictMismatchError: If something does not fit. Nothing was changed.
        StateError: If the net has no such part. Nothing was changed.
        SourceMissingError: If a file is missing.
        IntegrityError: If a byte is not the one that was saved, or files of the checkpoint were not saved together.
        UnsupportedError: If a state has an object of a class that was not passed. Nothing was changed.
        UnsafeError: If a pickle names what could only do harm.
        TypeError: If there is no such argument.
        TensorkeepError: If a file cannot be read.
    """
    targets = _targets(
        "load_params",
        f_params=f_params,
        f_optimizer=f_optimizer,
        f_criterion=f_criterion,
        f_history=f_history,
        f_training=f_training,
        **kwargs,
    )
    if f_checkpoint is not None and f_pickle is not None:
        raise TypeError("load_params called with both f_checkpoint and f_pickle, please choose one")
    whole = f_checkpoint if f_checkpoint is not None else f_pickle
    if not targets and whole is None and checkpoint is None:
        _say(net, "Nothing to load")
        return
    if (whole is not None or checkpoint is not None) and not net.initialized_:
        net.initialize()
    if targets.keys() - {HISTORY}:
        check_initialized(net, "load")
    wait_for_others(net)
    saved, known = SavedNet.of({}), classes_by_name(classes)
    if checkpoint is not None:
        saved |= checkpoint_of(checkpoint).read_saved(net, without=targets, classes=known)
    if whole is not None:
        saved |= SavedNet.of({CHECKPOINT: read_file(_placed(whole), CHECKPOINT, known)})
    saved |= SavedNet.of({part: read_file(_placed(target), part, known) for part, target in targets.items()})
    restore_net(net, saved, strict=strict, training=training or TRAINING in targets)


def _targets(caller: str, **arguments: Target | None) -> dict[str, Target]:
    """Return part to target, of all that are not None."""
    targets: dict[str, Target] = {}
    for argument, target in arguments.items():
        part = part_of(argument, caller)
        if target is not None and part in targets:
            raise TypeError(f"{caller} called with both f_params and f_module, please choose one")
        if target is not None:
            targets[part] = target
    return targets


def _placed(target: Target) -> Target:
    return place_of(os.path.expanduser(os.fsdecode(target))) if is_path(target) else target


def _say(net: Any, text: str) -> None:
    if net.verbose:
        print(text)  # noqa: T201 - as skorch does
