"""The state of a run, back into the objects that it consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tensorkeep.state import Classes
from tensorkeep.training._generators import prepare_rng
from tensorkeep.training._inert import refuse_placeholders
from tensorkeep.training._prepare import prepare
from tensorkeep.training._saved import load_parts
from tensorkeep.transport import Openable

_Action = Callable[[], object]


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
    """Bring what `capture` gathered back into the objects of a run, so that it goes on as if it had never stopped.

    Everything is read and checked before anything is changed: parts, names and shapes, groups and moments of torch's
    optimizers, settings of its schedulers, states of random generators. Where something does not fit, all objects are
    as they were. Then models are loaded in the memory that they have, and the states of random generators are set
    last. Where an object's own `load_state_dict()` fails then, a note of its exception says what was changed already.

        rest = restore("step-500.safetensors", model=model, optimizer=optimizer)
        step = rest["step"]

    What `torch.save` wrote serves as well, and nothing of it is run; parts may also be called `model_state_dict` (or
    `state_dict`), `optimizer_state_dict`, `scheduler_state_dict` (or `lr_scheduler`, `lr_scheduler_state_dict`) and
    `scaler_state_dict`.

    Args:
        source: A directory, an index, a file, its bytes or a seekable file object; or what was loaded from one.
        model: What is to be loaded, or a dict, list or tuple of several, as it was captured. Wrapped by
            `torch.compile`, `DataParallel` or `DistributedDataParallel` or not, whatever it was then.
        optimizer: Likewise.
        scheduler: Likewise.
        scaler: Likewise.
        rng: Whether to set the random generators that Python, NumPy and torch have for everybody.
        strict: Whether these are errors: names that only a model or only the checkpoint has, tied weights that were
            saved with different numbers, fractions or complex numbers for tensors that hold none, a state that is the
            model's own memory, and the state of another kind of optimizer or scheduler, or of other parameters.
        device: Where torch's tensors of the result go.
        classes: Dataclasses, enums and named tuples that may be made again, or name to class.
        **extra: Objects by the name that they were captured under: random generators, and what has a
            `load_state_dict()`.

    Returns:
        Everything else that was captured, such as `{"step": 500}`. What stands under `model`, `optimizer`,
        `scheduler`, `scaler` or `rng` and was not asked for is neither read nor returned.

    Raises:
        StateDictMismatchError: If a part is not there, or does not fit its object. Nothing was changed.
        StateError: If an object has no way to be given a state. Nothing was changed.
        UnsupportedError: If a part has an object of a class that was not passed, or a model is on device meta.
            Nothing was changed.
        SourceMissingError: If there is no such checkpoint, or a shard is missing.
        FormatError: If the checkpoint is malformed.
        IntegrityError: If it is not whole.
        UnsafeError: If a pickle names what could only do harm.
        TransportError: If it cannot be read.
    """
    objects = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
    targets = {part: target for part, target in objects.items() if target is not None} | extra
    parts, rest = load_parts(source, [*targets, "rng"] if rng else [*targets], classes, device)
    actions: list[tuple[str, _Action]] = []
    for part, target in targets.items():
        refuse_placeholders(parts[part], part)
        actions += [(part, action) for action in prepare(target, parts[part], part, strict=strict)]
    if rng:
        actions += [("rng", action) for action in prepare_rng(parts["rng"], "rng")]
    _carry_out(actions)
    return rest


def _carry_out(actions: list[tuple[str, _Action]]) -> None:
    """Change the objects; where one fails in its own way of loading, say which were changed."""
    changed: list[str] = []
    for part, action in actions:
        try:
            action()
        except Exception as error:
            done = ", ".join(dict.fromkeys(changed)) or "nothing"
            error.add_note(f"restore changed {done} before this error, and {part} itself perhaps in part")
            raise
        changed.append(part)
