"""The plugins that save, load and remove the checkpoints of a Trainer or of Fabric."""

from __future__ import annotations

import os
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from tensorkeep.errors import StateError, UnsupportedError
from tensorkeep.integrations.lightning._files import (
    create_parent,
    device_of,
    located,
    read_checkpoint,
    remove_checkpoint,
    write_checkpoint,
)
from tensorkeep.integrations.lightning._library import import_library, register_plugin
from tensorkeep.integrations.lightning._links import LAST, links_to_last, redirect_links
from tensorkeep.integrations.lightning._pending import PendingSaves
from tensorkeep.integrations.lightning._placeholders import refuse_placeholder_states
from tensorkeep.integrations.lightning._values import as_data
from tensorkeep.state import Classes, classes_by_name
from tensorkeep.tensors import Prepared, prepare

if TYPE_CHECKING:
    from lightning.fabric.plugins import CheckpointIO
else:
    CheckpointIO = object  # it is registered with both packages that Lightning may be installed as


class TensorkeepCheckpointIO(CheckpointIO):
    """A plugin that saves and loads the checkpoints of a Trainer or of Fabric as safe files.

        trainer = Trainer(plugins=[TensorkeepCheckpointIO()])

    A checkpoint is one safetensors file with a digest of each tensor, whatever its suffix. It appears complete, or
    the save raises and nothing changes. It holds everything that Lightning saves. A value that is not data is
    refused, with its place in the checkpoint, before anything is written.

    Args:
        classes: Dataclasses, enums and named tuples among hyper-parameters and in states of callbacks that may be
            created on loading, and classes that may themselves be hyper-parameters; as a list, or a dict of name to
            class. A hyper-parameter of another class is loaded as `tensorkeep.NamedData`, and saved again as it was;
            a state with one is refused on loading.
        durable: Whether a save waits until data is on the disk (fsync), so that even a power cut cannot lose it.
        verify: Whether every byte is checked against its digest on loading. A safetensors file without digests, from
            another program, is then refused; in pickles, the checksums of the zip archive are checked.
        drop_unknown: Whether to leave out objects in Lightning's own pickles that are not known to be data, instead
            of refusing the file. They are never run.

    Raises:
        UnsupportedError: If an argument is invalid.
        MissingDependencyError: If Lightning is not installed.
    """

    def __init__(
        self, *, classes: Classes = (), durable: bool = True, verify: bool = True, drop_unknown: bool = False
    ) -> None:
        if not isinstance(verify, bool):
            raise UnsupportedError(
                "verify is invalid",
                expected="True or False",
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
        """Save a checkpoint, completely or not at all.

        Args:
            checkpoint: The checkpoint, as the Trainer passes it.
            path: The path of the file, or its URL in a store; missing directories are created, a link is replaced.
            storage_options: Only None is supported.

        Raises:
            StateError: If a value is not data but a function, a module or another object. Nothing was written.
            TypeError: If there are storage options.
            UnsupportedError: If the path is the URL of a server that cannot be written to.
            TransportError: If the file cannot be written. An existing one is unchanged.
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
        """Load a checkpoint of this plugin, or of Lightning itself.

        Args:
            path: The file, or its URL; its content tells its format.
            map_location: The device of tensors; None for the CPU. A dict or a function, as in torch, is used once, to
                map the CPU, since all tensors are read there.
            weights_only: Ignored: nothing in a checkpoint is ever run.

        Returns:
            The checkpoint.

        Raises:
            SourceMissingError: If there is no such file (also a FileNotFoundError).
            IntegrityError: If it is damaged.
            UnsupportedError: If a pickle holds objects that are not known to be data, there
                are no digests to verify, or a callback would get an object of a class that was not passed.
            UnsafeError: If a pickle names functions that serve only to do harm.
            FormatError: If the file is malformed, or a class differs from the one whose data was saved.
            MissingDependencyError: If a library that is needed is not installed.
            TransportError: If it cannot be read.
        """
        checkpoint = self.read(path, map_location)
        refuse_placeholder_states(checkpoint, located(path))
        return checkpoint

    def read(self, path: str | os.PathLike[str], map_location: Any = None) -> dict[str, Any]:
        """Load a checkpoint to look at it, not to resume from it.

        Objects of classes that were not passed are loaded as `tensorkeep.NamedData` everywhere.

        Args:
            path: The file.
            map_location: The device of tensors; see `load_checkpoint`.

        Returns:
            The checkpoint.

        Raises:
            TensorkeepError: If it cannot be read; see `load_checkpoint`.
        """
        checkpoint: dict[str, Any] = read_checkpoint(
            located(path),
            device=device_of(map_location),
            classes=self._classes,
            verifies=self._verify,
            drop_unknown=self._drop_unknown,
        )
        return checkpoint

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove a checkpoint, if it exists.

        Args:
            path: A file, a link, or the directory of a strategy that writes several files. A link to it that
                ModelCheckpoint created with `save_last="link"` is redirected to the last saved checkpoint.

        Raises:
            UnsupportedError: If the path is the URL of a server that cannot be written to.
            TransportError: If it cannot be removed.
        """
        remove_checkpoint(self._without_links(path))

    def teardown(self) -> None:
        """Do nothing: every save is complete when it returns."""

    def _target(self, path: str | os.PathLike[str], storage_options: Any) -> str:
        if storage_options is not None:
            raise TypeError(f"{type(self).__name__} takes no storage_options")
        target = located(path)
        create_parent(target)
        return target

    def _without_links(self, path: str | os.PathLike[str]) -> str:
        """Return the path of a checkpoint to remove, after redirecting links of ModelCheckpoint."""
        removed = located(path)
        if self._newest is not None:
            redirect_links(removed, self._newest)
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
    """Like `TensorkeepCheckpointIO`, but saves in the background: training waits only for a copy in memory.

        trainer = Trainer(plugins=[AsyncTensorkeepCheckpointIO()])

    Saves are written one after another. A replaced checkpoint is removed when the new one is complete, and kept if
    that fails. An error is raised at the next call of a method, at the latest when the Trainer ends. Loading waits
    for unfinished saves, and so does the end of the process.

    Args:
        max_waiting: How many checkpoints may wait in memory while another is written. With 1, there are up to two
            copies, and even ModelCheckpoint with `save_last=True`, which saves twice in a row, need not wait.
        classes: Classes that may be created on loading; see `TensorkeepCheckpointIO`.
        durable: Whether a save waits until data is on the disk (fsync).
        verify: Whether every byte is checked against its digest on loading.
        drop_unknown: Whether to leave out unknown objects in Lightning's own pickles.

    Raises:
        UnsupportedError: If an argument is invalid.
        MissingDependencyError: If Lightning is not installed.
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
            checkpoint: The checkpoint, which may be changed as soon as this returns.
            path: The path of the file, or its URL in a store; missing directories are created, a link is replaced.
            storage_options: Only None is supported.

        Raises:
            StateError: If a value is not data. Nothing was started.
            TypeError: If there are storage options.
            UnsupportedError: If the path is the URL of a server that cannot be written to.
            TransportError: If its directory cannot be created.
            BaseException: What an earlier save raised. This one was not started.
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
        if is_linked:  # ModelCheckpoint redirects the link as soon as this returns
            self._pending.wait()

    def read(self, path: str | os.PathLike[str], map_location: Any = None) -> dict[str, Any]:
        """Load a checkpoint to look at it, when all saves are written.

        Args:
            path: The file.
            map_location: The device of tensors; see `load_checkpoint`.

        Returns:
            The checkpoint.

        Raises:
            TensorkeepError: If it cannot be read; see `load_checkpoint`.
            BaseException: What an earlier save raised.
        """
        self._pending.wait()
        return super().read(path, map_location)

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove a checkpoint when all saves started so far are written.

        Args:
            path: A file, a link, or a directory; see `TensorkeepCheckpointIO.remove_checkpoint`.

        Raises:
            UnsupportedError: If the path is the URL of a server that cannot be written to.
            TransportError: If there is no save to wait for, and it cannot be removed.
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
        """Wait until everything is written and removed; the Trainer calls this when it ends.

        Raises:
            BaseException: What a save raised.
        """
        self._pending.wait()


def _warn_of_equal_names(target: str, unwritten: set[str]) -> None:
    if target in unwritten and not os.path.basename(target).startswith(LAST):
        warnings.warn(
            f"{target} is saved again before it is written, and will be replaced: ModelCheckpoint numbers equal names"
            " only if the files exist. Include {step} in its filename=",
            stacklevel=3,
        )


import_library()
register_plugin(TensorkeepCheckpointIO)
