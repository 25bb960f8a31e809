"""`save_params` and `load_params`: parts of a net in safe files, all or nothing."""

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
    """Save parts of a net, completely or not at all; like `net.save_params`.

        save_params(net, f_params="params.safetensors", f_optimizer="optimizer.safetensors")
        save_params(net, f_checkpoint="net.safetensors")

    Args:
        net: The net, initialized.
        f_params: Path or binary file object for the state of `net.module_`; None to leave it out, as for all `f_`
            arguments.
        f_optimizer: For `net.optimizer_`.
        f_criterion: For `net.criterion_`.
        f_history: For the history, as JSON.
        use_safetensors: Ignored: files are always safetensors.
        f_checkpoint: For everything in one file: all modules, criteria and optimizers, the history, and what
            `f_training` gets.
        f_training: For random generators, and the states of callbacks that have one, such as learning rate
            schedules.
        durable: Whether to wait until data is on the disk (fsync), so that even a power cut cannot lose it.
        **kwargs: `f_mymodule` for `net.mymodule_`, and so on.

    Raises:
        NotInitializedError: If the net is not initialized.
        StateError: If the net has no such part, or a value in a state is not data.
        UnsupportedError: If two parts have the same path, or a pickle is asked for.
        TypeError: If there is no such argument.
        TransportError: If a file cannot be written. All files are then as they were.
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
        _print(net, "Nothing to save")
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
    """Load parts of a net, from safe files or from files of skorch; like `net.load_params`.

        load_params(net, f_params="params.safetensors", f_optimizer="optimizer.safetensors")
        load_params(net, f_checkpoint="net.safetensors")
        load_params(net, checkpoint=callback)

    The content tells what a file is: safetensors, a file of `torch.save`, or a pickled net. Nothing in a pickle is
    run. A part may also be taken from a file with all parts: `f_params="net.safetensors"` takes the module.
    Everything is read and checked before anything is changed.

    Args:
        net: The net. With `checkpoint`, `f_checkpoint` or `f_pickle` it is initialized if necessary.
        f_params: Path or binary file object with the state of `net.module_`; None to leave it unchanged, as for all
            `f_` arguments.
        f_optimizer: For `net.optimizer_`.
        f_criterion: For `net.criterion_`.
        f_history: For the history.
        checkpoint: A callback whose last save is loaded, except for parts that are named.
        use_safetensors: Ignored.
        f_checkpoint: A file with everything.
        f_training: A file with random generators, and which parameters are frozen. The states of callbacks are only
            loaded by `LoadInitState`, since callbacks start afresh with each training.
        f_pickle: A pickled net, from which the states of modules, criteria and optimizers, the history and the
            classes are taken.
        strict: Whether to refuse names that only the net or only the file has. If False, common names are loaded.
        training: Whether to load what `f_training` describes from `checkpoint` and `f_checkpoint` too.
        classes: Dataclasses, enums and named tuples in states that may be created.
        **kwargs: `f_mymodule` for `net.mymodule_`, and so on.

    Raises:
        NotInitializedError: If the net is not initialized.
        StateDictMismatchError: If something does not fit. Nothing was changed.
        StateError: If the net has no such part. Nothing was changed.
        SourceMissingError: If a file is missing.
        IntegrityError: If a file is damaged, or files of the checkpoint were not saved together.
        UnsupportedError: If a state holds an object of a class that was not passed. Nothing was changed.
        UnsafeError: If a pickle names functions that serve only to do harm.
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
        _print(net, "Nothing to load")
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
    """Return the targets that are not None, by part."""
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


def _print(net: Any, text: str) -> None:
    if net.verbose:
        print(text)  # noqa: T201 - as skorch does
