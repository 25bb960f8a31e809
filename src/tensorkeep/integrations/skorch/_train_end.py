"""The callback of skorch that saves when training ends."""

from __future__ import annotations

import os
from collections.abc import Callable

import skorch.callbacks
from skorch.utils import noop

from tensorkeep.errors import UnsupportedError
from tensorkeep.integrations.skorch._checkpoint import Checkpoint, refuse_pickle
from tensorkeep.integrations.skorch._files import Target
from tensorkeep.integrations.skorch._names import (
    CRITERION_NAME,
    HISTORY_NAME,
    OPTIMIZER_NAME,
    PARAMS_NAME,
    TRAINING_NAME,
)


class TrainEndCheckpoint(skorch.callbacks.TrainEndCheckpoint):
    """Saves the net when training ends; skorch's callback, with safe files. See `Checkpoint`.

    Args:
        f_params: As of `Checkpoint`; so are all others.
        f_optimizer: Likewise.
        f_criterion: Likewise.
        f_history: Likewise.
        f_pickle: Likewise.
        fn_prefix: What the names of all files begin with.
        dirname: Where they are; it is made if it is missing.
        use_safetensors: Of no effect: files are safetensors.
        sink: Called with a text when it is saved.
        f_training: As of `Checkpoint`.
        f_checkpoint: Likewise.
        durable: Likewise.
        **kwargs: Likewise.

    Raises:
        UnsupportedError: If a pickle is asked for.
        TypeError: If there is no such argument.
    """

    def __init__(
        self,
        f_params: Target | None = PARAMS_NAME,
        f_optimizer: Target | None = OPTIMIZER_NAME,
        f_criterion: Target | None = CRITERION_NAME,
        f_history: Target | None = HISTORY_NAME,
        f_pickle: None = None,
        fn_prefix: str = "train_end_",
        dirname: str | os.PathLike[str] = "",
        use_safetensors: bool = True,
        sink: Callable[[str], object] = noop,
        f_training: Target | None = TRAINING_NAME,
        f_checkpoint: Target | None = None,
        durable: bool = True,
        **kwargs: Target | None,
    ) -> None:
        super().__init__(
            f_params=f_params,
            f_optimizer=f_optimizer,
            f_criterion=f_criterion,
            f_history=f_history,
            f_pickle=f_pickle,
            fn_prefix=fn_prefix,
            dirname=dirname,
            sink=sink,
            f_training=f_training,
            f_checkpoint=f_checkpoint,
            **kwargs,
        )
        self.use_safetensors = use_safetensors
        self.durable = durable
        refuse_pickle(f_pickle)

    def initialize(self) -> TrainEndCheckpoint:
        """Make the directory.

        Raises:
            TransportError: If that cannot be done.
        """
        self.checkpoint_ = self.as_checkpoint()
        self.checkpoint_.initialize()
        return self

    def as_checkpoint(self) -> Checkpoint:
        """Return the callback that saves to the same files."""
        return Checkpoint(
            monitor=None,
            fn_prefix=self.fn_prefix,
            dirname=self.dirname,
            event_name=None,
            sink=self.sink,
            durable=self.durable,
            **self._f_kwargs(),
        )


def checkpoint_of(callback: Checkpoint | TrainEndCheckpoint) -> Checkpoint:
    """Return the callback that saves to the files of another."""
    if isinstance(callback, TrainEndCheckpoint):
        return callback.as_checkpoint()
    if isinstance(callback, Checkpoint):
        return callback
    raise UnsupportedError(
        "the files of this checkpoint callback are not known",
        expected="a Checkpoint or TrainEndCheckpoint of tensorkeep.integrations.skorch",
        found=f"{type(callback).__module__}.{type(callback).__qualname__}",
        hint="Make one with the arguments of this one; it reads what this one wrote",
    )
