"""The callback of skorch that saves while a net is trained, to safe files."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import skorch.callbacks
from skorch.utils import noop

from tensorkeep.errors import SourceMissingError, UnsupportedError, as_transport_error
from tensorkeep.integrations.skorch._files import Target, is_path
from tensorkeep.integrations.skorch._names import (
    CHECKPOINT,
    CRITERION_NAME,
    HISTORY,
    HISTORY_NAME,
    OPTIMIZER_NAME,
    PARAMS_NAME,
    TRAINING,
    TRAINING_NAME,
    DefaultName,
    FileName,
    part_of,
)
from tensorkeep.integrations.skorch._nets import restore_net, save_net, wait_for_others
from tensorkeep.integrations.skorch._parts import components
from tensorkeep.integrations.skorch._sets import SavedNet, last_event, other_saves, read_set
from tensorkeep.state import Classes, classes_by_name
from tensorkeep.transport import sync_directory


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
        dirname: Where they are; it is made if it is missing. `~` is the directory of the user.
        event_name: Column of the history that says whether something was saved in an epoch; None for none.
        sink: Called with a text for each event.
        load_best: Whether to load what was saved last when training ends.
        use_safetensors: Of no effect: files are safetensors.
        f_training: Name of the file for what else a run needs to go on: random generators, which parameters are
            frozen, and the states of learning rate schedules, early stopping, and other callbacks that have a
            `state_dict()`.
        f_checkpoint: Name of one file for everything. Other files are then written only if they are named.
        durable: Whether to wait until the disk has everything (fsync), so that not even a power cut loses it.
        classes: Dataclasses, enums and named tuples that may be made again where states have them.
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
        f_params: Target | None = PARAMS_NAME,
        f_optimizer: Target | None = OPTIMIZER_NAME,
        f_criterion: Target | None = CRITERION_NAME,
        f_history: Target | None = HISTORY_NAME,
        f_pickle: None = None,
        fn_prefix: str = "",
        dirname: str | os.PathLike[str] = "",
        event_name: str | None = "event_cp",
        sink: Callable[[str], object] = noop,
        load_best: bool = False,
        use_safetensors: bool = True,
        f_training: Target | None = TRAINING_NAME,
        f_checkpoint: Target | None = None,
        durable: bool = True,
        classes: Classes = (),
        **kwargs: Target | None,
    ) -> None:
        self.durable = durable
        self.classes = classes
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

    @property
    def _directory(self) -> str:
        return os.path.expanduser(os.fsdecode(self.dirname))

    def initialize(self) -> Checkpoint:
        """Make the directory.

        Raises:
            TransportError: If that cannot be done.
        """
        self._validate_filenames()
        directory = os.path.abspath(self._directory)
        with as_transport_error("could not make the directory", directory):
            missing = list(_missing(directory))
            os.makedirs(directory, exist_ok=True)
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
            restore_net(net, self.read_saved(net), strict=True, training=False)

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
        name = None if self.f_history is None else self._file_name(HISTORY, self.f_history)
        return name.shown if isinstance(name, FileName) and isinstance(self.f_history, str) else self.f_history

    def file_names(self, net: Any) -> dict[str, FileName | Target]:
        """Return part to the name of its file, or to a file object.

        Args:
            net: The net, which may have more parts than there are arguments.
        """
        return {part: self._file_name(part, given) for part, given in self._given(net).items()}

    def read_saved(self, net: Any, without: Collection[str] = (), classes: Classes = ()) -> SavedNet:
        """Read what was saved last; see `read`.

        Args:
            net: The net, initialized.
            without: Parts that are not read.
            classes: Those that may be made again, beside those of this callback.

        Raises:
            SourceMissingError: If there is nothing, or a part is missing.
            TensorkeepError: See `read`.
        """
        saved = self.read(net, without, classes)
        if saved is None:
            names = [name for name in self.file_names(net).values() if isinstance(name, FileName)]
            raise SourceMissingError(
                "nothing was saved there yet",
                path=names[0].shown if names else None,
                found=", ".join(self.other_saves()) or None,
            )
        return saved

    def other_saves(self) -> list[str]:
        """Return the files in the directory of this callback that were saved of nets under other names."""
        return other_saves(self._directory, self.fn_prefix) if self._directory else []

    def read(self, net: Any, without: Collection[str] = (), classes: Classes = ()) -> SavedNet | None:
        """Read what was saved last, by this callback or by skorch's own with the same arguments.

        Args:
            net: The net.
            without: Parts that are not read.
            classes: Those that may be made again, beside those of this callback.

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
        known = {**classes_by_name(self.classes), **classes_by_name(classes)}
        return read_set(names, older, net, self.event_name, known)

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
            return FileName(self._directory, self.fn_prefix, str(given), is_default, part == HISTORY)
        return FileName("", "", os.fspath(given), is_literal=True) if is_path(given) else given


def refuse_pickle(f_pickle: object) -> None:
    """Refuse to pickle a net."""
    if f_pickle is not None:
        raise UnsupportedError(
            "f_pickle would write a pickle of the net, which is a program: whoever loads it runs it",
            expected="None",
            found=repr(f_pickle),
            hint='f_checkpoint="net.safetensors" saves the whole state of the net in one safe file; make the net with'
            " your own code, and load_params brings the state back",
        )


def _missing(directory: str) -> Iterator[str]:
    """Give a directory and those around it, as far as they are not there."""
    while not os.path.exists(directory):
        yield directory
        directory = os.path.dirname(directory)


def _path(name: FileName | Target, net: Any, history: Any, row: int) -> Target:
    return name.path(net, history, row) if isinstance(name, FileName) else name
