"""An `Accelerator` that saves and loads the state of a run completely or not at all, and without pickles."""

from __future__ import annotations

from types import MethodType
from typing import Any, TypeVar

import accelerate

from tensorkeep.errors import UnsupportedError
from tensorkeep.integrations.accelerate._load import load_state
from tensorkeep.integrations.accelerate._loaders import skip_first_batches
from tensorkeep.integrations.accelerate._processes import connect
from tensorkeep.integrations.accelerate._save import save_model, save_state
from tensorkeep.integrations.accelerate._support import refuse_unsupported

_METHODS = (save_state, load_state, save_model, skip_first_batches)

_Accelerator = TypeVar("_Accelerator", bound=accelerate.Accelerator)


class Accelerator(accelerate.Accelerator):
    """accelerate's `Accelerator`, whose state is saved completely or not at all, and without pickles.

    Raises:
        UnsupportedError: If an engine (FSDP, DeepSpeed, Megatron-LM, XLA) keeps the state of the run in parts.
    """

    save_state = save_state
    load_state = load_state
    save_model = save_model
    skip_first_batches = skip_first_batches

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Take what accelerate's `Accelerator` takes."""
        super().__init__(*arguments, **named)
        refuse_unsupported(self)
        connect(self)


def keep_safe(accelerator: _Accelerator) -> _Accelerator:
    """Let an accelerator that exists save and load as the `Accelerator` of this module does.

    Args:
        accelerator: Its methods `save_state`, `load_state`, `save_model` and `skip_first_batches` become others. All
            processes of a run must do this.

    Returns:
        The same object.

    Raises:
        UnsupportedError: If an engine (FSDP, DeepSpeed, Megatron-LM, XLA) keeps the state of the run in parts; or it
            is no accelerator.
    """
    if not isinstance(accelerator, accelerate.Accelerator):
        raise UnsupportedError(
            "only an Accelerator is made to save and load so",
            expected="an accelerate.Accelerator",
            found=f"{type(accelerator).__module__}.{type(accelerator).__qualname__}",
        )
    refuse_unsupported(accelerator)
    connect(accelerator)
    for method in _METHODS:
        setattr(accelerator, method.__name__, MethodType(method, accelerator))
    return accelerator
