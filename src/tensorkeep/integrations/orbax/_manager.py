"""`CheckpointManager`: what orbax's does, over a `CheckpointStore`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Self

import jax

from tensorkeep.checkpoint import SaveHandle, open_checkpoint
from tensorkeep.dtypes import BY_NAME
from tensorkeep.errors import RefusedError, SourceMissingError, UnsupportedError
from tensorkeep.integrations.orbax._items import Wanted, captured, items_of, wanted
from tensorkeep.integrations.orbax._older_steps import older_path, older_steps
from tensorkeep.integrations.orbax._options import BEST, CheckpointManagerOptions, options_of
from tensorkeep.integrations.orbax._process_store import ProcessStore
from tensorkeep.integrations.orbax.args import Composite
from tensorkeep.jax import restore
from tensorkeep.kinds import Opened
from tensorkeep.tensors import LazyTensor

_ITEMS: Final = "orbax.items"
"""Key of metadata with the names of the items of a step, as JSON; a step without it is one item."""


class CheckpointManager:
    """The steps of a run, as orbax's `CheckpointManager` keeps them: same methods, arguments and results.

        manager = CheckpointManager("/run", options=CheckpointManagerOptions(max_to_keep=3))
        manager.save(step, args=args.StandardSave(state))
        state = manager.restore(manager.latest_step(), args=args.StandardRestore(abstract_state))

    Each step is a directory of safetensors files in a `CheckpointStore`, which any reader opens. In a job of several
    processes, all of them call each method, and save one checkpoint together; see `tensorkeep.jax.save`. Steps that
    orbax saved to the directory are listed, can be restored, and are never removed.

    Args:
        directory: The directory; the first save creates it.
        options: `CheckpointManagerOptions`, from orbax or from this module.
        item_names: Ignored; accepted because orbax has it.
        engine: `"tensorstore"` to restore steps that orbax saved by that library, which parses their files in C++.

    Raises:
        UnsupportedError: If an option asks for something that a store cannot do.
        TransportError: If `directory` is a file.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        options: CheckpointManagerOptions | Any = None,
        item_names: Sequence[str] | None = None,  # noqa: ARG002
        engine: Literal["tensorstore"] | None = None,
    ) -> None:
        self._engine = engine
        self._options = options_of(options)
        self._store = ProcessStore(os.fspath(directory), prune=True, **self._options.rules())
        self._handle: SaveHandle | None = None
        self._begun: int | None = None

    @property
    def directory(self) -> str:
        """The absolute path of the directory."""
        return self._store.root

    def save(self, step: int, *, args: Any, metrics: Mapping[str, Any] | None = None, force: bool = False) -> bool:
        """Save a step if the options ask for it; in the background, unless the options say otherwise.

        Args:
            step: Its number.
            args: `StandardSave`, `PyTreeSave`, `JsonSave`, or a `Composite` of these.
            metrics: Metric name to number.
            force: Whether to save it whatever the options say.

        Returns:
            Whether the step is saved.

        Raises:
            RefusedError: If there is such a step already.
            StateError: If a leaf is not data, or processes pass different states.
            UnsupportedError: If `args` is of another kind, or the manager is read-only.
            TransportError: If the store cannot be written.
            BaseException: What an earlier save in the background raised.
        """
        self.check_for_errors()
        if not force and not self.should_save(step):
            return False
        if self._options.read_only:
            raise UnsupportedError("the manager is read-only", path=self.directory)
        if step in self.all_steps():
            raise RefusedError(
                f"step {step} exists already", path=self.directory, hint=f"Remove it first: manager.delete({step})"
            )
        self.wait_until_finished()
        items = items_of(args)
        state = captured(args) if items is None else {name: captured(item) for name, item in items.items()}
        numbers = dict(metrics or {})
        if self._options.best_fn is not None and metrics is not None:
            numbers[BEST] = self._options.best_fn(metrics)
        self._handle = self._store.keep(
            step,
            state,
            numbers,
            {} if items is None else {_ITEMS: json.dumps(list(items))},
            in_background=self._options.enable_async_checkpointing,
        )
        self._begun = step
        return True

    def restore(self, step: int | None = None, *, args: Any = None) -> Any:
        """Restore a step, with the shardings of a template; each process reads its own shards.

        Args:
            step: Its number; None for the latest.
            args: `StandardRestore`, `PyTreeRestore`, `JsonRestore`, or a `Composite` of these with the items wanted.
                None restores everything as it was saved.

        Returns:
            What was saved; several items as a `Composite`.

        Raises:
            SourceMissingError: If there is no such step or item (also a FileNotFoundError).
            StateDictMismatchError: If something does not fit the template; the message lists everything.
            UnsupportedError: If `args` is of another kind.
            IntegrityError: If the step is incomplete or damaged.
            TransportError: If it cannot be read.
        """
        self.wait_until_finished()
        step = self.latest_step() if step is None else step
        if step is None:
            raise SourceMissingError("there is no step yet", path=self.directory)
        wanted_items = items_of(args)
        if step not in self._store and step in older_steps(self.directory):
            return self._restored_older(step, args, wanted_items)
        with open_checkpoint(self._store.path_of(step), framework="jax") as opened:
            names = _items_in(opened)
            if names is None:
                if wanted_items is not None:
                    raise _missing_item(step, list(wanted_items), ["one without a name"], self.directory)
                return _restored(opened.tree, wanted(args))
            chosen = dict.fromkeys(names) if args is None else wanted_items
            if chosen is None or not chosen.keys() <= set(names):
                raise _missing_item(step, list(chosen or ["one without a name"]), names, self.directory)
            return Composite(**{name: _restored(opened.tree[name], wanted(item)) for name, item in chosen.items()})

    def _restored_older(self, step: int, args: Any, items: Mapping[str, Any] | None) -> Any:
        """Restore a step that orbax saved."""
        restored: dict[str | None, Any] = {}
        for name, item in ({None: args} if items is None else items).items():
            path = older_path(self.directory, step, name)
            with open_checkpoint(path, framework="jax", engine=self._engine) as opened:
                restored[name] = _restored(opened.tree, wanted(item))
        return (
            restored[None] if items is None else Composite(**{str(name): value for name, value in restored.items()})
        )

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
        steps = {*self._store.steps(), *older_steps(self.directory)}
        if self._begun is not None and self.is_saving_in_progress():
            steps.add(self._begun)
        return sorted(steps)

    def latest_step(self) -> int | None:
        """Return the highest step, or None before the first."""
        return max(self.all_steps(), default=None)

    def best_step(self) -> int | None:
        """Return the best step by `best_fn`, or the latest without it; None before the first."""
        self.wait_until_finished()
        return self.latest_step() if self._options.best_fn is None else self._store.best()

    def metrics(self, step: int) -> dict[str, float] | None:
        """Return the metrics of a step; None if it has none.

        Args:
            step: Its number.

        Raises:
            SourceMissingError: If there is no such step.
        """
        found = self._store.metrics_of(step)
        found.pop(BEST, None)
        return found or None

    def item_metadata(self, step: int) -> Any:
        """Return what a step holds, as a tree of `jax.ShapeDtypeStruct`; several items as a `Composite`.

        Args:
            step: Its number.

        Raises:
            SourceMissingError: If there is no such step.
        """
        with self._store.open(step, framework="jax") as opened:
            described = jax.tree.map(_described, opened.tree, is_leaf=lambda leaf: isinstance(leaf, LazyTensor))
            return described if _items_in(opened) is None else Composite(**described)

    def delete(self, step: int) -> None:
        """Remove a step; in a job of several processes, the first one does.

        Args:
            step: Its number.

        Raises:
            SourceMissingError: If there is no such step.
            BusyError: If it is being saved by another process.
        """
        self.wait_until_finished()
        if jax.process_index() == 0:
            self._store.remove(step)

    def wait_until_finished(self) -> None:
        """Wait until the step that is being saved is complete.

        Raises:
            BaseException: What the save raised.
        """
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.result()

    def check_for_errors(self) -> None:
        """Raise what a save in the background raised, if it has ended.

        Raises:
            BaseException: What the save raised.
        """
        if self._handle is not None and self._handle.done():
            self.wait_until_finished()

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


def _items_in(opened: Opened) -> list[str] | None:
    text = (opened.metadata or {}).get(_ITEMS)
    return None if text is None else list(json.loads(text))


def _restored(tree: Any, item: Wanted) -> Any:
    return restore(tree, tree if item.like is None else item.like, shardings=item.shardings, strict=item.strict)


def _missing_item(step: int, asked: list[str], found: list[str], directory: str) -> SourceMissingError:
    return SourceMissingError(
        f"step {step} has other items", path=directory, expected=", ".join(asked), found=", ".join(found)
    )


def _described(leaf: Any) -> Any:
    if not isinstance(leaf, LazyTensor):
        return leaf
    describe: Any = jax.ShapeDtypeStruct
    return describe(leaf.shape, jax.numpy.dtype(BY_NAME[leaf.dtype].numpy))
