"""`TrainEndCheckpoint`: a callback that saves a net when training ends."""

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
    """skorch's `TrainEndCheckpoint` with safe files: saves the net when training ends.

    Files, and what reads them, are as for `Checkpoint`.

    Args:
        f_params: File name for the module, or None to leave it out, as for all `f_` arguments.
        f_optimizer: File name for the optimizer.
        f_criterion: File name for the criterion.
        f_history: File name for the history, as JSON; without fields.
        f_pickle: Only None is supported: loading a pickled net runs code from the file.
        fn_prefix: Prefix of all file names.
        dirname: The directory, created if it does not exist, or its URL in a store; see `Checkpoint`.
        use_safetensors: Ignored: files are always safetensors.
        sink: Called with a text at the save.
        f_training: File name for the rest of what a run needs to continue.
        f_checkpoint: File name for everything in one file. Other files are then written only if they are named.
        durable: Whether to wait until data is on the disk (fsync), so that even a power cut cannot lose it.
        **kwargs: `f_mymodule` for `net.mymodule_`, and so on.

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
        """Create the directory.

        Returns:
            The callback.

        Raises:
            UnsupportedError: If `dirname` is a URL that cannot be written to.
            TransportError: If the directory cannot be created.
        """
        self.checkpoint_ = self.as_checkpoint()
        self.checkpoint_.initialize()
        return self

    def as_checkpoint(self) -> Checkpoint:
        """Return a `Checkpoint` for the same files."""
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
    """Return the `Checkpoint` for the files of a callback."""
    if isinstance(callback, TrainEndCheckpoint):
        return callback.as_checkpoint()
    if isinstance(callback, Checkpoint):
        return callback
    raise UnsupportedError(
        "the files of this checkpoint callback are not known",
        expected="a Checkpoint or TrainEndCheckpoint of tensorkeep.integrations.skorch",
        found=f"{type(callback).__module__}.{type(callback).__qualname__}",
        hint="Create one of these with the same arguments; it reads the files of this one",
    )
