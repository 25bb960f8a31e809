"""`restore`: the state of a run, loaded into its objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorkeep.runs import Action, apply, load_parts, refuse_placeholders
from tensorkeep.state import Classes
from tensorkeep.training._generators import prepare_rng
from tensorkeep.training._prepare import prepare
from tensorkeep.transport import Openable


def restore(
    source: Openable | Mapping[str, Any],
    *,
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    scaler: Any = None,
    rng: bool = True,
    strict: bool = True,
    device: Any = "cpu",
    classes: Classes = (),
    **extra: Any,
) -> dict[str, Any]:
    """Load what `capture` gathered into the objects of a run, so that it continues as if it had never stopped.

        rest = restore("step-500.safetensors", model=model, optimizer=optimizer, scheduler=scheduler)
        step = rest["step"]

    Everything is read and checked before anything is changed: parts, names and shapes, groups and moments of torch's
    optimizers, settings of its schedulers, states of random generators. If something does not fit, all objects are
    left as they were. Then models are loaded in the memory that they have, and random generators are set last. If an
    object's own `load_state_dict()` fails at that point, a note on its exception says what was already changed.

    Files of `torch.save` are accepted too, and nothing in them is run. Their parts may also be called
    `model_state_dict` (or `state_dict`), `optimizer_state_dict`, `scheduler_state_dict` (or `lr_scheduler`,
    `lr_scheduler_state_dict`) and `scaler_state_dict`.

    Args:
        source: A directory, a shard index, a file, its bytes or a seekable file object; or a state already loaded
            from one.
        model: The model to load, or a dict, list or tuple of several, as they were captured. It may be wrapped by
            `torch.compile`, `DataParallel` or `DistributedDataParallel`, whether or not it was when captured.
        optimizer: The optimizer, or several.
        scheduler: The learning rate scheduler, or several.
        scaler: The gradient scaler, or several.
        rng: Whether to set the global random generators of Python, NumPy and torch.
        strict: Whether to refuse: names that only the model or only the checkpoint has; tied weights that were saved
            with different values; values that a tensor's dtype cannot hold, such as fractions for integers; a state
            that is the model's own memory; and the state of another kind of optimizer or scheduler, or of other
            parameters.
        device: Where torch tensors in the result go.
        classes: Dataclasses, enums and named tuples that may be created from the file, as a list, or as a dict of
            name to class.
        **extra: Objects by the names under which they were captured: random generators, and objects with
            `load_state_dict()`.

    Returns:
        Everything else that was captured, such as `{"step": 500}`. A `model`, `optimizer`, `scheduler`, `scaler` or
        `rng` that was not asked for is neither read nor returned.

    Raises:
        StateDictMismatchError: If a part is missing, or does not fit its object. Nothing was changed.
        StateError: If an object cannot be given a state. Nothing was changed.
        UnsupportedError: If a part holds an object of a class that was not passed, or a model is on device meta.
            Nothing was changed.
        SourceMissingError: If there is no such checkpoint, or a shard is missing.
        FormatError: If the checkpoint is malformed.
        IntegrityError: If it is incomplete or damaged.
        UnsafeError: If a pickle names functions that serve only to do harm.
        TypeError: If `source` is a `CheckpointStore`.
        TransportError: If it cannot be read.

    Examples:
        >>> model = torch.nn.Linear(2, 2)
        >>> tensorkeep.save(capture(model=model, step=500), "step-500.safetensors")
        >>> restore("step-500.safetensors", model=model)
        {'step': 500}
    """
    objects = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
    targets = {part: target for part, target in objects.items() if target is not None} | extra
    parts, rest = load_parts(
        source, [*targets, "rng"] if rng else [*targets], classes, framework=None, others_on=("torch", device)
    )
    actions: list[tuple[str, Action]] = []
    for part, target in targets.items():
        refuse_placeholders(parts[part], part)
        actions += [(part, action) for action in prepare(target, parts[part], part, strict=strict)]
    if rng:  # last, since loading an object may draw random numbers
        actions += [("rng", action) for action in prepare_rng(parts["rng"], "rng")]
    apply(actions)
    return rest
