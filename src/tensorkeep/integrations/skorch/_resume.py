"""A callback of skorch that goes on with what another saved."""

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
    """Goes on with what a checkpoint callback saved, when training begins; skorch's callback, for safe files.

    All parts are brought back, or none: where one is missing or damaged, that is an error, and the net is as it was.
    Where there is nothing at all yet, training begins anew. Random generators, learning rate schedules and early
    stopping go on from where they were.

    Args:
        checkpoint: The callback that saved.
        use_safetensors: Of no effect: files are known by their content.
        classes: Dataclasses, enums and named tuples that may be made again where states of callbacks have them.
    """

    def __init__(
        self, checkpoint: Checkpoint | TrainEndCheckpoint, use_safetensors: bool = True, classes: Classes = ()
    ) -> None:
        super().__init__(checkpoint, use_safetensors)
        self.classes = classes

    def initialize(self) -> LoadInitState:
        """Forget that anything was loaded."""
        self.resumption_: Resumption | None = None
        self.did_load_: bool = False
        return self

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:  # noqa: ARG002, N803
        """Bring the net back, once.

        Args:
            net: The net.
            X: Of no effect.
            y: Of no effect.
            **kwargs: Of no effect.

        Raises:
            StateDictMismatchError: If what was saved does not fit. Nothing was changed.
            SourceMissingError: If a part is missing and others are there. Nothing was changed.
            IntegrityError: If something is not as it was saved. Nothing was changed.
            UnsupportedError: If a state has an object of a class that was not passed. Nothing was changed.
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
        """Bring back the states of callbacks, now that all of them have begun to train.

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
            f"training begins anew, beside what was saved under other names: {', '.join(others)}. To go on from"
            " there, make the checkpoint callback with the arguments that it had",
            stacklevel=4,
        )
