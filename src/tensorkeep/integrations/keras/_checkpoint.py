"""`StoreCheckpoint`: a callback that saves the state of a run, and continues a run that was interrupted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, Literal

import keras
import msgspec
import numpy as np

from tensorkeep.checkpoint import SaveHandle
from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.runs.keras import capture, restore
from tensorkeep.state import Classes
from tensorkeep.store import CheckpointStore

_MONITOR: Final = "val_loss"
"""What decides which step is best, in a store that is given by its directory."""


class Position(msgspec.Struct, frozen=True):
    """How far a run has come.

    Attributes:
        epoch: Epochs that are complete.
        batch: Batches of the next epoch that are complete.
        step: Batches of all epochs that are complete.
    """

    epoch: int
    batch: int
    step: int


class StoreCheckpoint(keras.callbacks.Callback):
    """Saves a run in a store while `fit` trains it, and resumes the run that is in the store.

        store = CheckpointStore("run", keep_last=2, monitor="val_loss")
        model.fit(x, y, epochs=10, callbacks=[StoreCheckpoint(store)])

    A step of the store holds the model with its seed generators, the optimizer, the global random generators and the
    position. Its number is the number of batches so far, and its metrics are the numbers in the logs. If the store
    has steps when `fit` begins, the last one is restored into the model, all or nothing, and `fit` continues with the
    next epoch. If that step was saved within an epoch, `fit` begins that epoch again.

    Args:
        store: The store, or a directory for one that keeps the last 3 steps, and the best one by `val_loss`.
        every: When to save: `"epoch"` for after each epoch, or a number of batches to also save within epochs.
        resume: Whether to resume the run in the store.
        background: Whether to copy the state and write it while training continues.
        rng: Whether to save and restore the global random generators.
        objects: Other objects to save and restore, by name, such as the generator that orders the data.
        classes: Dataclasses, enums and named tuples in these that may be created.

    Attributes:
        resumed: The position from which `fit` continued; None if it started from the beginning.

    Raises:
        UnsupportedError: If `every` is neither `"epoch"` nor a positive number.
    """

    def __init__(
        self,
        store: CheckpointStore | str | os.PathLike[str],
        *,
        every: int | Literal["epoch"] = "epoch",
        resume: bool = True,
        background: bool = False,
        rng: bool = True,
        objects: Mapping[str, Any] | None = None,
        classes: Classes = (),
    ) -> None:
        super().__init__()
        if every != "epoch" and (type(every) is not int or every < 1):
            raise UnsupportedError("`every` is invalid", expected='"epoch" or a number of batches', found=repr(every))
        self.store = store if isinstance(store, CheckpointStore) else CheckpointStore(store, monitor=_MONITOR)
        self.resumed: Position | None = None
        self._every = None if every == "epoch" else every
        self._resumes = resume
        self._is_in_background = background
        self._rng = rng
        self._objects = dict(objects or {})
        self._classes = classes
        self._position = Position(0, 0, 0)
        self._saved_at = 0
        self._handle: SaveHandle | None = None

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002 - Keras's
        """Restore the last step of the store, if there is one; Keras calls this.

        Args:
            logs: Ignored.

        Raises:
            StateDictMismatchError: If it does not fit the model. Nothing was changed.
            StateError: If the model is not built.
            TensorkeepError: If the step cannot be read, or was not saved by this callback.
        """
        self.resumed, self._position = None, Position(0, 0, 0)
        if self._resumes and len(self.store):
            self.resumed = self._position = self._restored()
            self.model._initial_epoch = self._position.epoch
        self._saved_at = self._position.step

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002 - Keras's
        """Note the epoch; Keras calls this.

        Args:
            epoch: Its number, from 0.
            logs: Ignored.
        """
        self._position = Position(epoch, 0, self._position.step)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Save the run if enough batches passed since the last save; Keras calls this.

        Args:
            batch: The number of the batch in its epoch, from 0: of the last one, if Keras runs several at once.
            logs: Metrics so far.

        Raises:
            TensorkeepError: If the save fails. The store is as it was.
        """
        done = batch + 1 - self._position.batch
        self._position = Position(self._position.epoch, batch + 1, self._position.step + done)
        if self._every is not None and self._position.step - self._saved_at >= self._every:
            self._save(logs)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Save the run; Keras calls this.

        Args:
            epoch: The number of the epoch, from 0.
            logs: Metrics of the epoch.

        Raises:
            TensorkeepError: If the save fails. The store is as it was.
        """
        self._position = Position(epoch + 1, 0, self._position.step)
        self._save(logs)

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002 - Keras's
        """Wait for the last save; Keras calls this.

        Args:
            logs: Ignored.

        Raises:
            TensorkeepError: If it failed.
        """
        self.model._initial_epoch = None  # for this call of fit only
        if self._handle is not None:
            self._handle.wait()
            self._handle = None

    def _save(self, logs: Mapping[str, Any] | None) -> None:
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()  # while jax trains, variables are not in the model
        position = msgspec.structs.asdict(self._position)
        state = capture(model=self.model, rng=self._rng, position=position, **self._objects)
        metrics = _numbers_in(logs or {})
        if self._is_in_background:
            self._handle = self.store.save_async(self._position.step, state, metrics)
        else:
            self.store.save(self._position.step, state, metrics)
        self._saved_at = self._position.step

    def _restored(self) -> Position:
        state = self.store.load("latest", framework="numpy", classes=self._classes)
        try:
            position = msgspec.convert(state["position"], Position)
        except (KeyError, TypeError, msgspec.ValidationError) as error:
            raise FormatError(
                "the last step of the store has no position in a run",
                path=self.store.root,
                found=str(error),
                hint="Use another store, or pass resume=False",
            ) from None
        restore(state, model=self.model, rng=self._rng, **self._objects)
        return position


def _numbers_in(logs: Mapping[str, Any]) -> dict[str, float]:
    """Return the logs that are numbers: a metric may also give one for each class."""
    return {name: float(value) for name, value in logs.items() if np.ndim(value) == 0}
