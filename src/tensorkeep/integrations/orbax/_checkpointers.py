"""Orbax's checkpointers: one checkpoint at a path, without steps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal, Self

import jax

from tensorkeep.checkpoint import SaveOptions, open_checkpoint
from tensorkeep.errors import RefusedError, SourceMissingError, as_transport_error
from tensorkeep.integrations.orbax._background import OneSave
from tensorkeep.integrations.orbax._handlers import check_handlers
from tensorkeep.integrations.orbax._items import restore_items, state_to_save
from tensorkeep.integrations.orbax._metadata import OF_STEP, StepMetadata, as_metadata, custom_in, described
from tensorkeep.integrations.orbax.args import PyTreeRestore, PyTreeSave, StandardRestore, StandardSave
from tensorkeep.jax import capture, save_async
from tensorkeep.jax.meshes import ALIGNMENT_NBYTES, TogetherSave, meet, target_directory
from tensorkeep.tensors import check_target, prepare
from tensorkeep.transport import RemotePath, is_remote

_Path = str | os.PathLike[str]

_SHARD_NBYTES: Final = 5 * 10**9
"""Bytes of one file, unless one array is larger."""


class _Paths(OneSave):
    """Saves to paths, one after the other, and restores from them."""

    def __init__(self, engine: Literal["tensorstore"] | None) -> None:
        self._engine = engine
        super().__init__()

    def _begin(self, path: _Path, args: Any, custom_metadata: Any, *, force: bool) -> None:
        if jax.process_count() == 1:
            self.wait_until_finished()
            state, metadata = _contents(path, args, custom_metadata, force=force)
            self._handle = save_async(state, path, metadata=metadata)
            return
        with meet() as meeting:  # even if no array is over several processes: all of them call this
            earlier = self._earlier_error()
            state, metadata = _contents(path, args, custom_metadata, force=force)
            options = SaveOptions(max_shard_nbytes=_SHARD_NBYTES, metadata=metadata, align=ALIGNMENT_NBYTES)
            together = TogetherSave(meeting, prepare(capture(state)), target_directory(path), options)
            self._handle = together.in_background()
        if earlier is not None:  # raised last: the others, which may not have it, save now
            raise earlier

    def _restore(self, path: _Path, args: Any) -> Any:
        self.wait_until_finished()
        with open_checkpoint(path, framework="jax", engine=self._engine) as opened:
            return restore_items(opened, args)

    def metadata(self, directory: _Path) -> StepMetadata:
        """Return what a checkpoint holds.

        Args:
            directory: Its path.

        Raises:
            SourceMissingError: If there is nothing.
            FormatError: If it is malformed.
            TransportError: If it cannot be read.
        """
        self.wait_until_finished()
        with open_checkpoint(directory, framework="jax", engine=self._engine) as opened:
            return StepMetadata(described(opened), {}, custom_in(opened, OF_STEP))

    def close(self) -> None:
        """Wait until what is being saved is complete.

        Raises:
            BaseException: What the save raised.
        """
        self.wait_until_finished()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _contents(path: _Path, args: Any, custom_metadata: Any, *, force: bool) -> tuple[Any, dict[str, str]]:
    """Return what is saved to a path that may be written, and its metadata."""
    target = check_target(path)
    if not force and _is_taken(target):
        raise RefusedError(
            "there is something at this path already", path=target, hint="Pass force=True to replace it"
        )
    if not is_remote(target):
        with as_transport_error("could not create the directory", target):
            os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    state, names = state_to_save(args)
    return state, names | as_metadata(OF_STEP, custom_metadata)


def _is_taken(target: str) -> bool:
    if not is_remote(target):
        return os.path.lexists(target)
    path = RemotePath.of(target)
    if path.split()[1].endswith(".safetensors"):
        with suppress(SourceMissingError):
            path.version()
            return True
    return bool(path.objects())


class StandardCheckpointer(_Paths):
    """Saves a pytree to a path in the background, as orbax's `StandardCheckpointer` does.

        with StandardCheckpointer() as checkpointer:
            checkpointer.save("/model", state)
        state = checkpointer.restore("/model", abstract_state)

    Args:
        engine: `"tensorstore"` to restore what orbax saved with that library, which parses the files in C++.
        **options: Options of orbax for its own files; ignored.
    """

    def __init__(self, *, engine: Literal["tensorstore"] | None = None, **options: Any) -> None:  # noqa: ARG002
        super().__init__(engine)

    def save(
        self,
        directory: _Path,
        state: Any,
        *,
        save_args: Any = None,
        force: bool = False,
        custom_metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Save a pytree; in a job of several processes, all of them call this.

        Args:
            directory: Where to save: a path or a URL.
            state: The pytree.
            save_args: See `args.StandardSave`.
            force: Whether to replace what is there.
            custom_metadata: Plain data, which `metadata` returns.

        Raises:
            RefusedError: If there is something already, and `force` is false.
            StateError: If a leaf or metadata is not data.
            UnsupportedError: If `save_args` asks for a dtype.
            BaseException: What an earlier save in the background raised.
        """
        self._begin(directory, StandardSave(state, save_args), custom_metadata, force=force)

    def restore(self, directory: _Path, target: Any = None, *, strict: bool = True) -> Any:
        """Restore a pytree, with the shardings of a template; each process reads its own shards.

        Args:
            directory: A path or URL of a checkpoint of any kind.
            target: The template; None restores what was saved.
            strict: Whether to refuse leaves that only the checkpoint has.

        Returns:
            A tree like the template.

        Raises:
            StateDictMismatchError: If something does not fit; the message lists everything.
            SourceMissingError: If there is nothing.
            IntegrityError: If the checkpoint is incomplete or damaged.
            TransportError: If it cannot be read.
        """
        return self._restore(directory, StandardRestore(target, strict))


class Checkpointer(_Paths):
    """Saves what arguments say to a path, as orbax's `Checkpointer` does.

    Args:
        handler: A handler of pytrees or JSON; ignored.
        engine: `"tensorstore"` to restore what orbax saved with that library, which parses the files in C++.
        **options: Options of orbax for its own files; ignored.

    Raises:
        UnsupportedError: If the handler is of another kind.
    """

    _in_background = False

    def __init__(
        self,
        handler: Any = None,
        *,
        engine: Literal["tensorstore"] | None = None,
        **options: Any,  # noqa: ARG002
    ) -> None:
        check_handlers(handler)
        super().__init__(engine)

    def save(
        self,
        directory: _Path,
        item: Any = None,
        save_args: Any = None,
        *,
        args: Any = None,
        force: bool = False,
        custom_metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Save; in a job of several processes, all of them call this.

        Args:
            directory: Where to save: a path or a URL.
            item: A pytree, if there are no `args`.
            save_args: See `args.PyTreeSave`.
            args: `StandardSave`, `PyTreeSave`, `JsonSave`, or a `Composite` of these.
            force: Whether to replace what is there.
            custom_metadata: Plain data, which `metadata` returns.

        Raises:
            RefusedError: If there is something already, and `force` is false.
            StateError: If a leaf or metadata is not data.
            UnsupportedError: If `args` is of another kind.
            BaseException: What an earlier save in the background raised.
        """
        args = PyTreeSave(item, save_args) if args is None else args
        self._begin(directory, args, custom_metadata, force=force)
        if not self._in_background:
            self.wait_until_finished()

    def restore(
        self,
        directory: _Path,
        item: Any = None,
        restore_args: Any = None,
        transforms: Any = None,
        *,
        args: Any = None,
    ) -> Any:
        """Restore, with the shardings of a template; each process reads its own shards.

        Args:
            directory: A path or URL of a checkpoint of any kind.
            item: A template, if there are no `args`.
            restore_args: See `args.PyTreeRestore`.
            transforms: See `args.PyTreeRestore`.
            args: `StandardRestore`, `PyTreeRestore`, `JsonRestore`, or a `Composite` of these.

        Returns:
            What was saved; several items as a `Composite`.

        Raises:
            StateDictMismatchError: If something does not fit the template; the message lists everything.
            SourceMissingError: If there is nothing, or no such item.
            UnsupportedError: If `args` is of another kind.
            IntegrityError: If the checkpoint is incomplete or damaged.
            TransportError: If it cannot be read.
        """
        if args is None and any(given is not None for given in (item, restore_args, transforms)):
            args = PyTreeRestore(item, restore_args, transforms)
        return self._restore(directory, args)


class PyTreeCheckpointer(Checkpointer):
    """Saves a pytree to a path; the same as `Checkpointer`.

    Args:
        primary_host: Ignored, as all options of orbax for its own files.
        engine: See `Checkpointer`.
        **options: Ignored.
    """

    def __init__(
        self,
        primary_host: int | None = 0,  # noqa: ARG002
        *,
        engine: Literal["tensorstore"] | None = None,
        **options: Any,  # noqa: ARG002
    ) -> None:
        super().__init__(engine=engine)


class AsyncCheckpointer(Checkpointer):
    """A `Checkpointer` whose `save` returns when everything is copied, and which writes in the background.

    Args:
        handler: A handler of pytrees or JSON; ignored.
        timeout_secs: Ignored.
        engine: See `Checkpointer`.
        **options: Ignored.

    Raises:
        UnsupportedError: If the handler is of another kind.
    """

    _in_background = True

    def __init__(
        self,
        handler: Any = None,
        timeout_secs: int | None = None,  # noqa: ARG002
        *,
        engine: Literal["tensorstore"] | None = None,
        **options: Any,  # noqa: ARG002
    ) -> None:
        super().__init__(handler, engine=engine)
