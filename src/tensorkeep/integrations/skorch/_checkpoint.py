"""`Checkpoint`: a callback that saves a net while it is trained."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
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
from tensorkeep.integrations.skorch._nets import restore_net, save_net, save_parts, wait_for_others
from tensorkeep.integrations.skorch._parts import components
from tensorkeep.integrations.skorch._sets import SavedNet, last_event, other_saves, read_set
from tensorkeep.integrations.skorch._steps import located, read_step, save_step, store_at
from tensorkeep.state import Classes, classes_by_name
from tensorkeep.store import CheckpointStore
from tensorkeep.transport import check_writable, is_in_store, sync_directory


class Checkpoint(skorch.callbacks.Checkpoint):
    """skorch's `Checkpoint` with safe files: saves the net after each epoch in which it improved.

        checkpoint = Checkpoint(dirname="run")
        net = NeuralNetClassifier(Module, callbacks=[checkpoint, LoadInitState(checkpoint)])

    All files of one save are replaced together, so a killed process leaves the files of one epoch. A save that fails
    raises, and leaves the old files. `load_params(net, checkpoint=...)` and `LoadInitState` read them, and also the
    files of skorch's own callback with the same arguments.

    Args:
        monitor: Name of a history column, or a function of the net, that decides whether to save; None to save after
            every epoch.
        f_params: File name for the module, or None to leave it out, as for all `f_` arguments. Names may have fields,
            such as `"params_{last_epoch[epoch]}.safetensors"`. A file object is written to at each save.
        f_optimizer: File name for the optimizer.
        f_criterion: File name for the criterion.
        f_history: File name for the history, as JSON; without fields.
        f_pickle: Only None is supported: loading a pickled net runs code from the file.
        fn_prefix: Prefix of all file names.
        dirname: The directory, created if it does not exist; `~` is the user's home. At the URL of a directory in a
            store, each save is a step of a `tensorkeep.CheckpointStore` with all parts, by the rules recorded there
            or else the usual ones; file names are not used, and a prefix is a directory below.
        event_name: History column that records whether the net was saved in an epoch; None for no such column.
        sink: Called with a text at each save.
        load_best: Whether to load the last save when training ends.
        use_safetensors: Ignored: files are always safetensors.
        f_training: File name for the rest of what a run needs to continue: random generators, which parameters are
            frozen, and the states of learning rate schedules, early stopping and other callbacks with
            `state_dict()`.
        f_checkpoint: File name for everything in one file. Other files are then written only if they are named.
        durable: Whether to wait until data is on the disk (fsync), so that even a power cut cannot lose it.
        classes: Dataclasses, enums and named tuples in states that may be created when they are loaded.
        **kwargs: `f_mymodule` for `net.mymodule_`, and so on. By default, custom modules, criteria and optimizers are
            saved to `mymodule.safetensors`.

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
    def _store(self) -> CheckpointStore:
        """The store of a directory that is a URL."""
        return store_at(self.dirname, self.fn_prefix)

    @property
    def _directory(self) -> str:
        return located(self.dirname)

    def initialize(self) -> Checkpoint:
        """Create the directory.

        Returns:
            The callback.

        Raises:
            UnsupportedError: If a pickle is asked for, or `dirname` is a URL that cannot be written to.
            TransportError: If the directory cannot be created.
        """
        self._validate_filenames()
        if is_in_store(self.dirname):
            check_writable(self._directory)
            return self
        directory = os.path.abspath(self._directory)
        with as_transport_error("could not create the directory", directory):
            missing = list(_missing(directory))
            os.makedirs(directory, exist_ok=True)
            for created in missing if self.durable else ():
                sync_directory(os.path.dirname(created))
        return self

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Save the net if the monitor says so; skorch calls this.

        Args:
            net: The net.
            **kwargs: Ignored.

        Raises:
            TensorkeepError: If the save fails. The files are as they were, and the history records no save.
        """
        try:
            super().on_epoch_end(net, **kwargs)
        except BaseException:
            if self.event_name is not None and net.history:
                net.history.record(self.event_name, False)
            raise

    def on_train_end(self, net: Any, **kwargs: Any) -> None:  # noqa: ARG002 - skorch's
        """Load the last save, if `load_best`; skorch calls this.

        Args:
            net: The net.
            **kwargs: Ignored.

        Raises:
            TensorkeepError: If there is no save, or it cannot be read.
        """
        if self.load_best and self.monitor is not None:
            self._sink("Loading best checkpoint after training.", net.verbose)
            restore_net(net, self.read_saved(net), strict=True, training=False)

    def save_model(self, net: Any) -> None:
        """Save the net now.

        Args:
            net: The net.

        Raises:
            StateError: If a value in the net is not data.
            TransportError: If the files cannot be written. They are then as they were.
        """
        if is_in_store(self.dirname):
            save_parts(net, {CHECKPOINT}, partial(save_step, self._store), saver=self)
            return
        targets = {part: _path(name, net, net.history, -1) for part, name in self.file_names(net).items()}
        save_net(net, targets, saver=self, durable=self.durable)

    def get_formatted_files(self, net: Any) -> dict[str, Target | None]:
        """Return each `f_` argument with the path last saved to, its file object, or None if it is not saved.

        Args:
            net: The net, whose history fills in the fields of names.
        """
        row = last_event(net.history, self.event_name)
        arguments = {part_of(argument, ""): argument for argument in self._f_kwargs()}
        paths = {part: _path(name, net, net.history, row) for part, name in self.file_names(net).items()}
        return dict.fromkeys(self._f_kwargs()) | {
            arguments.get(part, f"f_{part}"): path for part, path in paths.items()
        }

    @property
    def f_history_(self) -> Target | None:
        """The path of the history, or its file object."""
        name = None if self.f_history is None else self._file_name(HISTORY, self.f_history)
        return name.shown if isinstance(name, FileName) and isinstance(self.f_history, str) else self.f_history

    def file_names(self, net: Any) -> dict[str, FileName | Target]:
        """Return each part of the net with the name of its file, or a file object.

        Args:
            net: The net, which may have more parts than there are arguments.
        """
        return {part: self._file_name(part, given) for part, given in self._given(net).items()}

    def read_saved(self, net: Any, without: Collection[str] = (), classes: Classes = ()) -> SavedNet:
        """Read the last save, which must exist.

        Args:
            net: The net, initialized.
            without: Parts not to read.
            classes: Classes that may be created, in addition to this callback's own.

        Returns:
            All parts.

        Raises:
            SourceMissingError: If nothing was saved, or a part is missing.
            IntegrityError: If a file is damaged, or files were not saved together.
            TensorkeepError: If a file cannot be read.
        """
        saved = self.read(net, without, classes)
        if saved is None:
            names = [name.shown for name in self.file_names(net).values() if isinstance(name, FileName)]
            raise SourceMissingError(
                "nothing was saved there yet",
                path=self._directory if is_in_store(self.dirname) else next(iter(names), None),
                found=", ".join(self.other_saves()) or None,
            )
        return saved

    def other_saves(self) -> list[str]:
        """Return files of nets in this callback's directory that have other names than its own."""
        is_local = self._directory and not is_in_store(self.dirname)
        return other_saves(self._directory, self.fn_prefix) if is_local else []

    def read(self, net: Any, without: Collection[str] = (), classes: Classes = ()) -> SavedNet | None:
        """Read the last save of this callback, or of skorch's own with the same arguments.

        Args:
            net: The net.
            without: Parts not to read.
            classes: Classes that may be created, in addition to this callback's own.

        Returns:
            All parts, or None if nothing was saved yet.

        Raises:
            SourceMissingError: If some parts exist and others are missing.
            IntegrityError: If a file is damaged, or files were not saved together.
            TensorkeepError: If a file cannot be read.
        """
        wait_for_others(net)
        known = {**classes_by_name(self.classes), **classes_by_name(classes)}
        if is_in_store(self.dirname):
            return read_step(self._store, without, known)
        names = {part: name for part, name in self.file_names(net).items() if part not in without}
        older = {
            part: name.older() if isinstance(name, FileName) and name.is_default and part != HISTORY else name
            for part, given in self._given(net, as_skorch=True).items()
            if part not in without and (name := self._file_name(part, given)) is not None
        }
        return read_set(names, older, net, self.event_name, known)

    def _given(self, net: Any, *, as_skorch: bool = False) -> dict[str, Target]:
        """Return all parts that are saved, with the argument given for each."""
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
        existing = {*components(net), HISTORY, TRAINING}
        return {
            part: target
            for part, target in given.items()
            if target is not None and not (isinstance(target, DefaultName) and (is_whole or part not in existing))
        }

    def _file_name(self, part: str, given: Target) -> FileName | Target:
        if isinstance(given, str):
            is_default = isinstance(given, DefaultName)
            return FileName(self._directory, self.fn_prefix, str(given), is_default, part == HISTORY)
        return FileName("", "", os.fspath(given), is_literal=True) if is_path(given) else given


def refuse_pickle(f_pickle: object) -> None:
    """Refuse `f_pickle`."""
    if f_pickle is not None:
        raise UnsupportedError(
            "f_pickle would write a pickle of the net, and loading that runs code from the file",
            expected="None",
            found=repr(f_pickle),
            hint='Pass f_checkpoint="net.safetensors" to save the whole state in one safe file. To load it, create'
            " the net with your own code, and call load_params",
        )


def _missing(directory: str) -> Iterator[str]:
    """Yield a directory and its parents that do not exist yet."""
    while not os.path.exists(directory):
        yield directory
        directory = os.path.dirname(directory)


def _path(name: FileName | Target, net: Any, history: Any, row: int) -> Target:
    return name.path(net, history, row) if isinstance(name, FileName) else name
