"""`CheckpointManager`: what orbax's does, over a `CheckpointStore`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import jax

from tensorkeep.errors import RefusedError, SourceMissingError, UnsupportedError
from tensorkeep.integrations.orbax._background import OneSave
from tensorkeep.integrations.orbax._handlers import check_handlers
from tensorkeep.integrations.orbax._items import restore_items, state_to_save
from tensorkeep.integrations.orbax._legacy import restore_args_of, save_args_of
from tensorkeep.integrations.orbax._metadata import (
    OF_RUN,
    OF_STEP,
    RootMetadata,
    StepMetadata,
    as_metadata,
    custom_in,
    described,
)
from tensorkeep.integrations.orbax._older_steps import OlderSteps
from tensorkeep.integrations.orbax._options import BEST, CheckpointManagerOptions, options_of
from tensorkeep.integrations.orbax._step_store import Contents, StepStore
from tensorkeep.jax import capture
from tensorkeep.kinds import Opened
from tensorkeep.transport import is_remote


class CheckpointManager(OneSave):
    """The steps of a run, as orbax's `CheckpointManager` keeps them: same methods, arguments and results.

        manager = CheckpointManager("/run", options=CheckpointManagerOptions(max_to_keep=3))
        manager.save(step, args=args.StandardSave(state))
        state = manager.restore(manager.latest_step(), args=args.StandardRestore(abstract_state))

    Each step is a directory of safetensors files in a `tensorkeep.jax.CheckpointStore`, which any reader opens. In a
    job of several processes, all of them call each method, and save one checkpoint together. Steps that orbax saved
    to the directory are listed, can be restored, and are never removed.

    Args:
        directory: The directory, which the first save creates, or its URL in a store.
        checkpointers: For programs that pass `items`: one checkpointer, or several by the name of their item.
        options: `CheckpointManagerOptions`, from orbax or from this module.
        metadata: Plain data about the run, kept with each step; see the method `metadata`.
        item_names: Ignored: the arguments of `save` say which items there are.
        item_handlers: Handlers of pytrees or JSON, one or by item. Ignored: files say what they hold.
        logger: Must be None.
        handler_registry: Must be None.
        engine: `"tensorstore"` to restore steps that orbax saved with that library, which parses their files in C++.

    Raises:
        UnsupportedError: If an option asks for something that a store cannot do, or a handler is of another kind.
        StateError: If `metadata` is not plain data.
        TransportError: If `directory` is a file.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        checkpointers: Any = None,
        options: CheckpointManagerOptions | Any = None,
        metadata: Mapping[str, Any] | None = None,
        item_names: Sequence[str] | None = None,  # noqa: ARG002
        item_handlers: Any = None,
        logger: Any = None,
        handler_registry: Any = None,
        *,
        engine: Literal["tensorstore"] | None = None,
    ) -> None:
        check_handlers(item_handlers)
        if logger is not None or handler_registry is not None:
            raise UnsupportedError(
                "a store has no logger and no registry of handlers", expected="logger=None, handler_registry=None"
            )
        self._engine = engine
        self._options = options_of(options)
        self._names_items = isinstance(checkpointers, Mapping)
        self._of_run = None if metadata is None else dict(metadata)
        self._metadata = as_metadata(OF_RUN, metadata)
        self._store = StepStore(os.fspath(directory), prune=True, **self._options.rules())
        self._older = OlderSteps(self._store.root, engine)
        super().__init__()
        self._begun: int | None = None

    @property
    def directory(self) -> Path | str:
        """The absolute path of the directory, or its URL."""
        root = self._store.root
        return root if is_remote(root) else Path(root)

    def save(
        self,
        step: int,
        items: Any = None,
        save_kwargs: Any = None,
        metrics: Mapping[str, Any] | None = None,
        force: bool | None = False,
        args: Any = None,
        custom_metadata: Mapping[str, Any] | None = None,
    ) -> bool:
        """Save a step if the options ask for it; in the background, unless the options say otherwise.

        Args:
            step: Its number.
            items: A pytree, or pytrees by name if the manager was given checkpointers by name; instead of `args`.
            save_kwargs: With `items`: `{"save_args": ...}`, or such a dict for each name.
            metrics: Metric name to number.
            force: Whether to save it whatever the options say.
            args: `StandardSave` or another one of `args`, or a `Composite` of several.
            custom_metadata: Plain data about the step; see the method `metadata`.

        Returns:
            Whether the step is saved.

        Raises:
            RefusedError: If there is such a step already.
            StateError: If a leaf or metadata is not data, or processes pass different states.
            UnsupportedError: If `args` is of another kind, or the manager is read-only.
            TransportError: If the store cannot be written.
            BaseException: What an earlier save in the background raised; in a job of several processes, this step is
                saved nevertheless.
        """
        if not force and not self.should_save(step):
            self.check_for_errors()
            return False
        if self._options.read_only:
            raise UnsupportedError("the manager is read-only", path=self._store.root)

        earlier: BaseException | None = None
        if jax.process_count() == 1:
            self.wait_until_finished()

        def contents() -> Contents:
            nonlocal earlier
            earlier = self._earlier_error()
            self._refuse_existing(step)
            given = save_args_of(items, save_kwargs, by_name=self._names_items) if args is None else args
            state, names = state_to_save(given)
            numbers = dict(metrics or {})
            if self._options.best_fn is not None and metrics is not None:
                numbers[BEST] = self._options.best_fn(metrics)
            metadata = names | self._metadata | as_metadata(OF_STEP, custom_metadata)
            return capture(state), numbers, metadata

        if self._options.enable_async_checkpointing:
            self._handle = self._store.save_async(step, contents)
        else:
            self._store.save(step, contents)
        self._begun = step
        if earlier is not None:  # raised last: the others, which may not have it, save now
            raise earlier
        return True

    def _refuse_existing(self, step: int) -> None:
        if step in self.all_steps():
            raise RefusedError(
                f"step {step} exists already", path=self._store.root, hint=f"Remove it first: manager.delete({step})"
            )

    def restore(
        self,
        step: int | None = None,
        items: Any = None,
        restore_kwargs: Any = None,
        directory: str | os.PathLike[str] | None = None,
        args: Any = None,
    ) -> Any:
        """Restore a step, with the shardings of a template; each process reads its own shards.

        Args:
            step: Its number; None for the latest.
            items: A template, or templates by name if the manager was given checkpointers by name.
            restore_kwargs: With `items` or alone: `{"restore_args": ...}`, or such a dict for each name.
            directory: The directory of another manager, whose step is restored.
            args: `StandardRestore` or another one of `args`, or a `Composite` of several, with the items wanted. None
                restores everything as it was saved.

        Returns:
            What was saved; several items as a `Composite`.

        Raises:
            SourceMissingError: If there is no such step or item (also a FileNotFoundError).
            StateDictMismatchError: If something does not fit the template; the message lists everything.
            UnsupportedError: If `args` is of another kind.
            IntegrityError: If the step is incomplete or damaged.
            TransportError: If it cannot be read.
        """
        if args is None:
            args = restore_args_of(items, restore_kwargs, by_name=self._names_items)
        if directory is not None:
            self.wait_until_finished()
            return CheckpointManager(directory, engine=self._engine).restore(step, args=args)
        step = self._store.decide(
            "restore", step, lambda: self._latest() if step is None else step, before=self.wait_until_finished
        )
        with self._opened(step) as opened:
            return restore_items(opened, args)

    def _latest(self) -> int:
        latest = self.latest_step()
        if latest is None:
            raise SourceMissingError("there is no step yet", path=self._store.root)
        return latest

    def _is_older(self, step: int) -> bool:
        """Say whether orbax saved a step."""
        return step not in self._store and step in self._older.numbers()

    def _opened(self, step: int) -> AbstractContextManager[Opened]:
        """Open a step of this store or of orbax."""
        return self._older.open(step) if self._is_older(step) else self._store.open(step, framework="jax")

    def should_save(self, step: int) -> bool:
        """Return whether the options ask for a step; never for one before the latest.

        Args:
            step: Its number.
        """
        return self._options.wants(step, self.latest_step())

    def all_steps(self, read: bool = False) -> list[int]:  # noqa: ARG002
        """Return the numbers of all steps, ascending, including one that is being saved.

        Args:
            read: Ignored; accepted because orbax has it.

        Raises:
            TransportError: If the store cannot be read.
        """
        # Asked before the store is read: a save that ends meanwhile is in neither otherwise.
        begun = {self._begun} if self._begun is not None and self.is_saving_in_progress() else set()
        return sorted({*begun, *self._store.steps(), *self._older.numbers()})

    def latest_step(self) -> int | None:
        """Return the highest step, or None before the first."""
        return max(self.all_steps(), default=None)

    def best_step(self) -> int | None:
        """Return the best step by `best_fn`, or the latest without it; None before the first."""
        self.wait_until_finished()
        best_fn, mode = self._options.best_fn, self._options.best_mode
        if best_fn is None:
            return self.latest_step()
        best, older = self._store.best(), self._older.best(best_fn, mode)
        if best is None or older is None:
            return best if older is None else older[1]
        value = self._store.metrics_of(best)[BEST]
        return older[1] if (older[0] > value if mode == "max" else older[0] < value) else best

    def metrics(self, step: int) -> dict[str, float] | None:
        """Return the metrics of a step; None if it has none.

        Args:
            step: Its number.

        Raises:
            SourceMissingError: If there is no such step.
        """
        self.wait_until_finished()
        found = self._older.metrics(step) if self._is_older(step) else self._store.metrics_of(step)
        found.pop(BEST, None)
        return found or None

    def item_metadata(self, step: int) -> Any:
        """Return what a step holds: shapes and dtypes, as `TreeMetadata`; several items as a `Composite`.

        It can be passed as a template, such as `StandardRestore(manager.item_metadata(step))`.

        Args:
            step: Its number.

        Raises:
            SourceMissingError: If there is no such step.
        """
        self.wait_until_finished()
        with self._opened(step) as opened:
            return described(opened)

    def metadata(self, step: int | None = None) -> RootMetadata | StepMetadata:
        """Return what is known of a step, or of the run.

        Args:
            step: Its number; None for the run: the `metadata` of this manager, or else of the latest step's.

        Raises:
            SourceMissingError: If there is no such step.
            FormatError: If the metadata is damaged.
        """
        self.wait_until_finished()
        if step is None:
            if self._of_run is not None:
                return RootMetadata(self._of_run)
            latest = self._store.latest()
            if latest is None:
                return RootMetadata(self._older.of_run())
            with self._store.open(latest) as opened:
                return RootMetadata(custom_in(opened, OF_RUN) or self._older.of_run())
        with self._opened(step) as opened:
            return StepMetadata(described(opened), self.metrics(step) or {}, custom_in(opened, OF_STEP))

    def delete(self, step: int) -> None:
        """Remove a step; in a job of several processes, it is gone when this returns in any of them.

        As with orbax, a manager that is read-only keeps it, and issues a warning.

        Args:
            step: Its number.

        Raises:
            SourceMissingError: If there is no such step.
            BusyError: If it is being saved by another process.
            StateError: If processes remove different steps.
        """
        if self._options.read_only:
            warnings.warn(f"{self._store.root}: the manager is read-only, so step {step} is kept", stacklevel=2)
            return
        self._store.decide("delete", step, partial(self._removed, step), before=self.wait_until_finished)

    def _removed(self, step: int) -> int:
        self._store.remove(step)
        return step

    def is_saving_in_progress(self) -> bool:
        """Return whether a step is being saved."""
        return self._handle is not None and not self._handle.done()

    def reached_preemption(self, step: int) -> bool:  # noqa: ARG002
        """Return False: a store knows nothing of preemption.

        Args:
            step: Ignored.
        """
        return False

    def reload(self) -> None:
        """Do nothing: steps are looked up each time."""

    def close(self) -> None:
        """Wait until the step that is being saved is complete.

        Raises:
            BaseException: What the save raised.
        """
        self.wait_until_finished()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
