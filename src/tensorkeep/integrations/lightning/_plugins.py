"""The plugins that save, load and remove the checkpoints of a Trainer or of Fabric, at once or in the background."""

from __future__ import annotations

import os
import warnings
from functools import partial
from typing import Any

from tensorkeep.errors import StateError, UnsupportedError
from tensorkeep.integrations.lightning._files import (
    device_of,
    local_path,
    make_directory_of,
    read_checkpoint,
    remove_checkpoint,
    write_checkpoint,
)
from tensorkeep.integrations.lightning._library import import_library, register_plugin
from tensorkeep.integrations.lightning._links import LAST, lead_on, links_to_last
from tensorkeep.integrations.lightning._pending import PendingSaves
from tensorkeep.integrations.lightning._placeholders import refuse_placeholder_states
from tensorkeep.integrations.lightning._values import as_data
from tensorkeep.state import Classes, classes_by_name
from tensorkeep.tensors import Prepared, prepare


class TensorkeepCheckpointIO:
    """Saves and loads the checkpoints of a Trainer or of Fabric: `Trainer(plugins=[TensorkeepCheckpointIO()])`.

    A checkpoint is one safetensors file with a digest of each tensor, whatever its name ends in. It appears complete,
    or the save raises and nothing has changed. It holds all that Lightning saves, and comes back as it was; what is
    no data is refused with its place before anything is written.

    Args:
        classes: Dataclasses, enums and named tuples among hyper-parameters that are made again when they are loaded,
            and in states of callbacks, and classes that may stand among hyper-parameters themselves; or name to
            class. A hyper-parameter of another class is loaded as `tensorkeep.NamedData`, and saved again as it was;
            a state that has one is refused when it is loaded.
        durable: Whether a save waits until the disk has everything (fsync), so that not even a power cut loses it.
        verify: Whether every byte is held against its digest when a checkpoint is loaded. A file of another program
            that has no digests is then refused; pickles have sums that are looked at.
        drop_unknown: Whether objects that are not known to be data, in pickles that Lightning itself has written, are
            left out; otherwise they are an error. Nothing of them is run in either case.
    """

    def __init__(
        self, *, classes: Classes = (), durable: bool = True, verify: bool = True, drop_unknown: bool = False
    ) -> None:
        if not isinstance(verify, bool):
            raise UnsupportedError(
                "verify is invalid",
                expected="True, which refuses a file without digests too, or False",
                found=repr(verify),
            )
        self._classes = classes_by_name(classes)
        self._durable = durable
        self._verify = verify
        self._drop_unknown = drop_unknown
        self._newest: str | None = None
        import_library()
        register_plugin(TensorkeepCheckpointIO)

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Save a checkpoint, complete or not at all.

        Args:
            checkpoint: Nested data, as the Trainer gives it.
            path: Where the file is to appear; missing directories are made, and a link is replaced.
            storage_options: None: there are no such options.

        Raises:
            StateError: If a value is no data: a function, a module, an object of some class. Nothing was written.
            TypeError: If there are storage options.
            UnsupportedError: If the path is a URL that leads to another machine.
            TransportError: If the file cannot be written; what stood there is as it was before.
            TensorkeepError: If a tensor cannot be saved.
        """
        target = self._target(path, storage_options)
        self._write(self._prepared(checkpoint), path=target)

    def load_checkpoint(
        self,
        path: str | os.PathLike[str],
        map_location: Any = None,
        weights_only: bool | None = None,  # noqa: ARG002 - Lightning's
    ) -> dict[str, Any]:
        """Load a checkpoint, saved by this plugin or by Lightning's own.

        Args:
            path: The file; what it is, is told by its content.
            map_location: Where tensors go: a device, or None for the CPU. A dict or a function, as torch takes
                them, is asked once, where what is on the CPU is to go: all tensors come from there.
            weights_only: Of no effect: nothing that is loaded here is ever run.

        Returns:
            What was saved. Tensors are on the CPU, unless `map_location` says otherwise.

        Raises:
            SourceMissingError: If there is no such file (also a FileNotFoundError).
            IntegrityError: If it is not as it was saved.
            UnsupportedError: If the path is a URL, a pickle holds what is not known to be data, there are no digests
                to verify by, or a callback would get an object of a class that was not passed.
            UnsafeError: If a pickle names what could only do harm.
            FormatError: If the file is malformed, or a class is not the one whose data were saved.
            MissingDependencyError: If a library is needed that is not installed.
            TransportError: If it cannot be read.
        """
        checkpoint = self.read(path, map_location)
        refuse_placeholder_states(checkpoint, local_path(path))
        return checkpoint

    def read(self, path: str | os.PathLike[str], map_location: Any = None) -> dict[str, Any]:
        """Load a checkpoint from which no Trainer is to go on.

        What is of a class that was not passed is loaded as `tensorkeep.NamedData` wherever it stands.

        Args:
            path: The file.
            map_location: Where tensors go; see `load_checkpoint`.

        Raises:
            TensorkeepError: See `load_checkpoint`.
        """
        checkpoint: dict[str, Any] = read_checkpoint(
            local_path(path),
            device=device_of(map_location),
            classes=self._classes,
            verifies=self._verify,
            drop_unknown=self._drop_unknown,
        )
        return checkpoint

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove a checkpoint, if it is there.

        Args:
            path: A file, a link, or the directory of a strategy that writes several files. A link to it that
                ModelCheckpoint made with `save_last="link"` then leads to the checkpoint that was saved last.

        Raises:
            UnsupportedError: If the path is a URL.
            TransportError: If it cannot be removed.
        """
        remove_checkpoint(self._without_links(path))

    def teardown(self) -> None:
        """Do nothing: no save is under way."""

    def _target(self, path: str | os.PathLike[str], storage_options: Any) -> str:
        if storage_options is not None:
            raise TypeError(f"{type(self).__name__} takes no storage_options")
        target = local_path(path)
        make_directory_of(target)
        return target

    def _without_links(self, path: str | os.PathLike[str]) -> str:
        """Return the path of a checkpoint that is to be removed, to which no link of ModelCheckpoint leads."""
        removed = local_path(path)
        if self._newest is not None:
            lead_on(removed, self._newest)
        return removed

    def _prepared(self, checkpoint: Any) -> Prepared:
        try:
            return prepare(as_data(checkpoint, self._classes))
        except StateError as error:
            if "hyper_parameters" in error.message:
                is_class = (error.found or "").startswith("the class ")
                known = ", or pass it to the plugin: TensorkeepCheckpointIO(classes=[...])" if is_class else ""
                hint = f"{error.hint}{known}; or leave it out: self.save_hyperparameters(ignore=[...])"
                raise error.with_fields(hint=hint) from None
            raise

    def _write(self, prepared: Prepared, path: str) -> None:
        write_checkpoint(prepared, path, durable=self._durable)
        self._newest = path


class AsyncTensorkeepCheckpointIO(TensorkeepCheckpointIO):
    """The same in the background: training waits for a copy in memory, and not for the disk.

    Saves are written one after another. What a checkpoint replaces is removed when the new one is complete, and never
    if that fails. An error is raised at the next call of any method, at the latest when the Trainer is done. Loading
    waits for what is being written, and so does the end of the process.

    Args:
        max_waiting: How many checkpoints may wait in memory while another is written. With 1, a ModelCheckpoint with
            `save_last=True`, which saves two at a time, does not wait either, and there are up to two copies.
        classes: See `TensorkeepCheckpointIO`.
        durable: See there.
        verify: See there.
        drop_unknown: See there.
    """

    def __init__(
        self,
        *,
        max_waiting: int = 1,
        classes: Classes = (),
        durable: bool = True,
        verify: bool = True,
        drop_unknown: bool = False,
    ) -> None:
        super().__init__(classes=classes, durable=durable, verify=verify, drop_unknown=drop_unknown)
        if max_waiting < 0:
            raise UnsupportedError("max_waiting is invalid", expected="0 or more", found=str(max_waiting))
        self._max_waiting = max_waiting
        self._pending = PendingSaves(remove_checkpoint)

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Copy a checkpoint in memory, and write it in the background.

        Args:
            checkpoint: Nested data; all of it may be changed when this returns.
            path: Where the file is to appear; missing directories are made, and a link is replaced.
            storage_options: None: there are no such options.

        Raises:
            StateError: If a value is no data. Nothing was begun.
            TypeError: If there are storage options.
            UnsupportedError: If the path is a URL that leads to another machine.
            TransportError: If its directory cannot be made.
            BaseException: What an earlier save raised. This one was not begun.
        """
        self._pending.raise_failed()
        target = self._target(path, storage_options)
        _warn_of_equal_names(target, self._pending.paths())
        is_linked = bool(links_to_last(os.path.dirname(target)))
        self._pending.start(
            partial(self._prepared, checkpoint),
            partial(self._write, path=target),
            target,
            max_waiting=self._max_waiting,
        )
        if is_linked:  # ModelCheckpoint changes the link as soon as this returns
            self._pending.wait()

    def read(self, path: str | os.PathLike[str], map_location: Any = None) -> dict[str, Any]:
        """Load a checkpoint when all saves are written; see `TensorkeepCheckpointIO.read`.

        Args:
            path: The file.
            map_location: Where tensors go.

        Raises:
            TensorkeepError: See there.
            BaseException: What an earlier save raised.
        """
        self._pending.wait()
        return super().read(path, map_location)

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove a checkpoint when all saves that were begun are written; at once where there is none.

        Args:
            path: See `TensorkeepCheckpointIO.remove_checkpoint`.

        Raises:
            UnsupportedError: If the path is a URL.
            TransportError: If it cannot be removed at once.
            BaseException: What an earlier save raised. Nothing was removed.
        """
        self._pending.raise_failed()
        self._pending.remove(self._without_links(path))

    def wait(self) -> None:
        """Wait until everything is written and removed.

        Raises:
            BaseException: What a save raised.
        """
        self._pending.wait()

    def teardown(self) -> None:
        """Wait until everything is written and removed; the Trainer calls this at its end.

        Raises:
            BaseException: What a save raised.
        """
        self._pending.wait()


def _warn_of_equal_names(target: str, unwritten: set[str]) -> None:
    if target in unwritten and not os.path.basename(target).startswith(LAST):
        warnings.warn(
            f"{target} is saved again before it is written, and will be replaced: ModelCheckpoint gives numbers to"
            " equal names only if the files are there. Have {step} in its filename=",
            stacklevel=3,
        )


import_library()
register_plugin(TensorkeepCheckpointIO)
