"""Callbacks of skorch that save to safe files."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import skorch.callbacks
from skorch.utils import noop

from tensorkeep.errors import SourceMissingError, UnsupportedError, as_transport_error
from tensorkeep.integrations.skorch._files import Target, is_path
from tensorkeep.integrations.skorch._names import CHECKPOINT, HISTORY, TRAINING, DefaultName, FileName, part_of
from tensorkeep.integrations.skorch._nets import restore_net, save_net, wait_for_others
from tensorkeep.integrations.skorch._parts import components
from tensorkeep.integrations.skorch._sets import SavedNet, last_event, read_set
from tensorkeep.transport import sync_directory

__all__ = ["Checkpoint", "TrainEndCheckpoint", "checkpoint_of", "read_checkpoint", "refuse_pickle"]

_PARAMS = DefaultName("params.safetensors")
_OPTIMIZER = DefaultName("optimizer.safetensors")
_CRITERION = DefaultName("criterion.safetensors")
_HISTORY = DefaultName("history.json")
_TRAINING = DefaultName("training.safetensors")


class Checkpoint(skorch.callbacks.Checkpoint):
    """Saves the net after each epoch in which it got better; skorch's callback, with safe files.

    All files of one event are replaced at once, so that a process that is killed leaves those of one epoch. A save
    that fails raises, and leaves them as they were. `load_params(net, checkpoint=...)` and `LoadInitState` read them,
    and also what skorch's own callback wrote with the same arguments.

    Args:
        monitor: The column of the history, or function of the net, that says whether to save; None for every epoch.
        f_params: Name of the file for the module; None for none. So for all `f_` arguments. Names may have fields,
            such as `"params_{last_epoch[epoch]}.safetensors"`; file objects are written to in each event.
        f_optimizer: That for the optimizer.
        f_criterion: That for the criterion.
        f_history: That for the history, as JSON; without fields.
        f_pickle: None: a pickle of a net is a program, which whoever loads it runs.
        fn_prefix: What the names of all files begin with.
        dirname: Where they are; it is made if it is missing.
        event_name: Column of the history that says whether something was saved in an epoch; None for none.
        sink: Called with a text for each event.
        load_best: Whether to load what was saved last when training ends.
        use_safetensors: Of no effect: files are safetensors.
        f_training: Name of the file for what else a run needs to go on: random generators, which parameters are
            frozen, and the states of learning rate schedules, early stopping, and other callbacks that have a
            `state_dict()`.
        f_checkpoint: Name of one file for everything. Other files are then written only if they are named.
        durable: Whether to wait until the disk has everything (fsync), so that not even a power cut loses it.
        **kwargs: `f_mymodule` for `net.mymodule_`, and so on. Custom modules, criteria and optimizers that are not
            named go to `mymodule.safetensors`.

    Raises:
        UnsupportedError: If a pickle is asked for.
        TypeError: If there is no such argument.
        SkorchException: If a file object is given together with `dirname`.
    """

    def __init__(
        self,
        monitor: str | Callable[[Any], bool] | None = "valid_loss_best",
        f_params: Target | None = _PARAMS,
        f_optimizer: Target | None = _OPTIMIZER,
        f_criterion: Target | None = _CRITERION,
        f_history: Target | None = _HISTORY,
        f_pickle: None = None,
        fn_prefix: str = "",
        dirname: str | os.PathLike[str] = "",
        event_name: str | None = "event_cp",
        sink: Callable[[str], object] = noop,
        load_best: bool = False,
        use_safetensors: bool = True,
        f_training: Target | None = _TRAINING,
        f_checkpoint: Target | None = None,
        durable: bool = True,
        **kwargs: Target | None,
    ) -> None:
        """Keep the arguments; see the class."""
        self.durable = durable
        super().__init__(
            monitor=monitor,
            f_params=f_params,
            f_optimizer=f_optimizer,
            f_criterion=f_criterion,
            f_history=f_history,
            f_pickle=f_pickle,
            fn_prefix=fn_prefix,
            dirname=dirname,
            event_name=event_name,
            sink=sink,
            load_best=load_best,
            use_safetensors=use_safetensors,
            f_training=f_training,
            f_checkpoint=f_checkpoint,
            **kwargs,
        )

    def _check_kwargs(self, kwargs: Mapping[str, Any]) -> None:
        for argument in kwargs:
            part_of(argument, type(self).__name__)

    def _validate_filenames(self) -> None:
        refuse_pickle(self.f_pickle)
        super()._validate_filenames()

    def initialize(self) -> Checkpoint:
        """Make the directory.

        Raises:
            TransportError: If that cannot be done.
        """
        directory = os.fspath(self.dirname)
        with as_transport_error("could not make the directory", directory):
            missing = list(_missing(os.path.abspath(directory)))
            super().initialize()
            for made in missing if self.durable else ():
                sync_directory(os.path.dirname(made))
        return self

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Save the net if it is time for it.

        Args:
            net: The net.
            **kwargs: Of no effect.

        Raises:
            TensorkeepError: If that fails. The files, and what the history says of them, are as they were.
        """
        try:
            super().on_epoch_end(net, **kwargs)
        except BaseException:
            if self.event_name is not None and net.history:
                net.history.record(self.event_name, False)
            raise

    def on_train_end(self, net: Any, **kwargs: Any) -> None:  # noqa: ARG002 - skorch's
        """Load what was saved last, if that was asked for.

        Args:
            net: The net.
            **kwargs: Of no effect.

        Raises:
            TensorkeepError: If there is nothing, or it cannot be read.
        """
        if self.load_best and self.monitor is not None:
            self._sink("Loading best checkpoint after training.", net.verbose)
            restore_net(net, read_checkpoint(self, net), strict=True, training=False)

    def save_model(self, net: Any) -> None:
        """Save the net now.

        Args:
            net: The net.

        Raises:
            StateError: If something in it is no data.
            TransportError: If it cannot be written. The files are then as they were.
        """
        targets = {part: _path(name, net, net.history, -1) for part, name in self.file_names(net).items()}
        save_net(net, targets, saver=self, durable=self.durable)

    def get_formatted_files(self, net: Any) -> dict[str, Target | None]:
        """Return argument to the path that was saved to last, or the file object; None where nothing is saved.

        Args:
            net: The net, whose history fills in the fields of names.
        """
        row = last_event(net.history, self.event_name)
        arguments = {part_of(argument, ""): argument for argument in self._f_kwargs()}
        paths = {part: _path(name, net, net.history, row) for part, name in self.file_names(net).items()}
        return dict.fromkeys(self._f_kwargs()) | {arguments.get(part, f"f_{part}"): it for part, it in paths.items()}

    @property
    def f_history_(self) -> Target | None:
        """The path of the history, or the file object."""
        return super().f_history_ if isinstance(self.f_history, str) else self.f_history

    def file_names(self, net: Any) -> dict[str, FileName | Target]:
        """Return part to the name of its file, or to a file object.

        Args:
            net: The net, which may have more parts than there are arguments.
        """
        return {part: self._file_name(part, given) for part, given in self._given(net).items()}

    def read(self, net: Any, without: Collection[str] = ()) -> SavedNet | None:
        """Read what was saved last, by this callback or by skorch's own with the same arguments.

        Args:
            net: The net.
            without: Parts that are not read.

        Returns:
            All of it; None if there is nothing yet.

        Raises:
            SourceMissingError: If a part is missing and others are there.
            IntegrityError: If a byte is not the one that was saved, or files were not saved together.
            TensorkeepError: If a file cannot be read.
        """
        wait_for_others(net)
        names = {part: name for part, name in self.file_names(net).items() if part not in without}
        older = {
            part: name.older() if isinstance(name, FileName) and name.is_default and part != HISTORY else name
            for part, given in self._given(net, as_skorch=True).items()
            if part not in without and (name := self._file_name(part, given)) is not None
        }
        return read_set(names, older, net, self.event_name)

    def _given(self, net: Any, *, as_skorch: bool = False) -> dict[str, Target]:
        """Return part to what was given for it, of all parts that are saved."""
        given: dict[str, Target | None] = {}
        for argument, target in self._f_kwargs().items():
            part = part_of(argument, type(self).__name__)
            if target is not None or part not in given:
                given[part] = target
        for part in components(net):
            given.setdefault(part, DefaultName(f"{part}.safetensors"))
        if as_skorch:
            given |= {TRAINING: None, CHECKPOINT: None}
        is_whole = given[CHECKPOINT] is not None
        there = {*components(net), HISTORY, TRAINING}
        return {
            part: target
            for part, target in given.items()
            if target is not None and not (isinstance(target, DefaultName) and (is_whole or part not in there))
        }

    def _file_name(self, part: str, given: Target) -> FileName | Target:
        if isinstance(given, str):
            is_default = isinstance(given, DefaultName)
            return FileName(os.fspath(self.dirname), self.fn_prefix, str(given), is_default, part == HISTORY)
        return FileName("", "", os.fspath(given), is_literal=True) if is_path(given) else given


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
        f_params: Target | None = _PARAMS,
        f_optimizer: Target | None = _OPTIMIZER,
        f_criterion: Target | None = _CRITERION,
        f_history: Target | None = _HISTORY,
        f_pickle: None = None,
        fn_prefix: str = "train_end_",
        dirname: str | os.PathLike[str] = "",
        use_safetensors: bool = True,
        sink: Callable[[str], object] = noop,
        f_training: Target | None = _TRAINING,
        f_checkpoint: Target | None = None,
        durable: bool = True,
        **kwargs: Target | None,
    ) -> None:
        """Keep the arguments; see the class."""
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


def read_checkpoint(callback: Checkpoint | TrainEndCheckpoint, net: Any, without: Collection[str] = ()) -> SavedNet:
    """Read what a callback saved.

    Args:
        callback: The callback.
        net: The net, initialized.
        without: Parts that are not read.

    Raises:
        SourceMissingError: If there is nothing, or a part is missing.
        IntegrityError: If a byte is not the one that was saved, or files were not saved together.
        UnsupportedError: If the callback is another one.
        TensorkeepError: If a file cannot be read.
    """
    checkpoint = checkpoint_of(callback)
    saved = checkpoint.read(net, without)
    if saved is None:
        names = [name for name in checkpoint.file_names(net).values() if isinstance(name, FileName)]
        raise SourceMissingError("nothing was saved there yet", path=names[0].shown if names else None)
    return saved


def refuse_pickle(f_pickle: object) -> None:
    """Refuse to pickle a net.

    Args:
        f_pickle: What was given for it.

    Raises:
        UnsupportedError: If anything was.
    """
    if f_pickle is not None:
        raise UnsupportedError(
            "f_pickle would write a pickle of the net, which is a program: whoever loads it runs it",
            expected="None",
            found=repr(f_pickle),
            hint='f_checkpoint="net.safetensors" saves the whole state of the net in one safe file; make the net with'
            " your own code, and load_params brings the state back",
        )


def checkpoint_of(callback: Checkpoint | TrainEndCheckpoint) -> Checkpoint:
    """Return the callback that saves to the files of another.

    Args:
        callback: The other, which may be that itself.

    Raises:
        UnsupportedError: If it is not one of these.
    """
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


def _missing(directory: str) -> Iterator[str]:
    """Give a directory and those around it, as far as they are not there."""
    while not os.path.exists(directory):
        yield directory
        directory = os.path.dirname(directory)


def _path(name: FileName | Target, net: Any, history: Any, row: int) -> Target:
    return name.path(net, history, row) if isinstance(name, FileName) else name
