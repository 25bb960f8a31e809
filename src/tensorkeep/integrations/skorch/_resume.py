"""`LoadInitState`: a callback that resumes from what another callback saved."""

from __future__ import annotations

import warnings
from typing import Any

import skorch.callbacks

from tensorkeep.integrations.skorch._checkpoint import Checkpoint
from tensorkeep.integrations.skorch._nets import restore_net
from tensorkeep.integrations.skorch._train_end import TrainEndCheckpoint, checkpoint_of
from tensorkeep.integrations.skorch._training import Resumption
from tensorkeep.state import Classes


class LoadInitState(skorch.callbacks.LoadInitState):
    """skorch's `LoadInitState` for safe files: when training begins, resumes from what a checkpoint callback saved.

        checkpoint = Checkpoint(dirname="run")
        net = NeuralNetClassifier(Module, callbacks=[checkpoint, LoadInitState(checkpoint)])

    All parts are loaded, or none: a missing or damaged one is an error, and the net is unchanged. If nothing was
    saved yet, training starts from the beginning. Random generators, learning rate schedules and early stopping
    continue where they were.

    Args:
        checkpoint: The callback that saves.
        use_safetensors: Ignored: files are recognized by their content.
        classes: Dataclasses, enums and named tuples in states of callbacks that may be created.
    """

    def __init__(
        self, checkpoint: Checkpoint | TrainEndCheckpoint, use_safetensors: bool = True, classes: Classes = ()
    ) -> None:
        super().__init__(checkpoint, use_safetensors)
        self.classes = classes

    def initialize(self) -> LoadInitState:
        """Reset the callback, so that it loads again.

        Returns:
            The callback.
        """
        self.resumption_: Resumption | None = None
        self.did_load_: bool = False
        return self

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:  # noqa: ARG002, N803
        """Load the last save into the net, once; skorch calls this.

        Args:
            net: The net.
            X: Ignored.
            y: Ignored.
            **kwargs: Ignored.

        Raises:
            StateDictMismatchError: If what was saved does not fit. Nothing was changed.
            SourceMissingError: If some parts exist and others are missing. Nothing was changed.
            IntegrityError: If a file is damaged. Nothing was changed.
            UnsupportedError: If a state holds an object of a class that was not passed. Nothing was changed.
            TensorkeepError: If a file cannot be read. Nothing was changed.
        """
        if self.did_load_:
            return
        checkpoint = checkpoint_of(self.checkpoint)
        saved = checkpoint.read(net, classes=self.classes)
        if saved is None:
            _warn_of(checkpoint.other_saves())
        else:
            self.resumption_ = restore_net(net, saved, strict=True, training=True)
        self.did_load_ = True

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        """Load the states of callbacks, now that all of them have been started; skorch calls this.

        Args:
            net: The net.
            **kwargs: The datasets.

        Raises:
            KeyboardInterrupt: If early stopping ends the training.
            StateDictMismatchError: If the state of a callback does not fit.
        """
        resumption, self.resumption_ = self.resumption_, None
        if resumption is not None:
            resumption.finish(net, **kwargs)


def _warn_of(others: list[str]) -> None:
    if others:
        warnings.warn(
            f"training starts from the beginning, though nets were saved under other names: {', '.join(others)}. To"
            " resume from them, create the checkpoint callback with the arguments it had",
            stacklevel=4,
        )
