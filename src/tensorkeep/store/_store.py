"""Checkpoints of a run: saved step by step, kept by rules, and found again."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from errno import ENOTDIR
from functools import partial
from typing import Any, Final, Literal

from tensorkeep.checkpoint import SaveHandle, save_in_background
from tensorkeep.errors import SourceMissingError, TransportError, UnsupportedError
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.safetensors import Checkpoint
from tensorkeep.layout import parse_size
from tensorkeep.state import Classes
from tensorkeep.store._listing import StepListing, measure
from tensorkeep.store._loading import load_newest, load_step
from tensorkeep.store._missing import check_name, naming_steps, refuse_metric
from tensorkeep.store._names import check_step, step_name
from tensorkeep.store._record import StepRecord, metrics_of, read_record, time_text
from tensorkeep.store._removal import remove_step
from tensorkeep.store._retention import Mode, Retention, best_steps
from tensorkeep.store._saving import RetentionWarning, StepWriter
from tensorkeep.store._steps import StepReader, latest_of, open_step, whole_metrics
from tensorkeep.tensors import Prepared, Selector, Ties, prepare
from tensorkeep.transport import refuse_url

_FRAMEWORK: Final = "numpy"
"""The array library of tensors of which nobody said another."""


class CheckpointStore:
    """The checkpoints of a run, one directory per step: `root/step-00000500`.

    Each is a checkpoint in the Hugging Face layout that any reader opens. It appears complete or not at all, so a
    step that was interrupted never counts. Files of tensors that did not change since the step before are not written
    again: the steps share them (hard links), and either can be removed. Each byte of such a file is read first; one
    that was damaged is written anew. Several processes may use one store.

    Older steps go when a new one is complete, and only then. A step is kept if any rule names it: it is among the
    last ones, the best ones, or the multiples of a number. The last ones are those that were saved last, whatever
    their numbers: a run that went back from step 500 to 300 and saves 310 goes on from there, and the steps that it
    left behind go first. The step that was just saved, and what no store has written, are never removed. Steps that
    were damaged stay, for somebody to look at, until there are `keep_last` whole ones with higher numbers. What dead
    processes left is removed by the next save. The rules are not stored: they hold for saves of this object.

    Args:
        root: The directory, made by the first save; where it is does not change with the working directory. `~` is
            the directory of the user.
        keep_last: How many of the steps that were saved last are kept; None for all.
        keep_best: How many of the best; None for all that have the metric.
        monitor: Name of the metric that says what is best; NaN never is. Of a save with other metrics only, a
            `RetentionWarning` says so.
        mode: Whether the least (`"min"`) or the greatest (`"max"`) is best; of equal ones, the first.
        keep_every: Multiples of this are kept; None for no such rule.
        max_shard_size: Bytes of tensors in one file: a number, or text such as `"512MB"`.
        durable: Whether saves wait until the disk has everything (fsync), so that not even a power cut loses it.

    Raises:
        UnsupportedError: If an argument is invalid.
        TransportError: If a file stands where the directory is to be.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        keep_last: int | None = 3,
        keep_best: int | None = 1,
        monitor: str = "valid_loss",
        mode: Mode = "min",
        keep_every: int | None = None,
        max_shard_size: int | str = "512MB",
        durable: bool = True,
    ) -> None:
        if mode not in {"min", "max"}:
            raise UnsupportedError(f"mode {mode!r} is invalid", expected='"min" or "max"')
        for name, number, least in (
            ("keep_last", keep_last, 1),
            ("keep_best", keep_best, 0),
            ("keep_every", keep_every, 1),
        ):
            if number is not None and not (isinstance(number, int) and number >= least):
                raise UnsupportedError(f"{name} is invalid", expected=f"{least} or more, or None", found=repr(number))
        refuse_url(os.fsdecode(root), hint="The URL of one of its steps can be opened as a checkpoint")
        self._root = os.path.abspath(
            os.path.expanduser(os.fsdecode(root))
        )  # whatever the working directory is when a thread saves
        if os.path.exists(self._root) and not os.path.isdir(self._root):
            raise TransportError(
                "the store is no directory", path=self._root, found="a file", hint="Give it another name"
            ).numbered(ENOTDIR)
        self._retention = Retention(keep_last, keep_best, keep_every, monitor, mode)
        self._steps = StepReader(self._root)
        self._writer = StepWriter(self._root, self._steps, self._retention, parse_size(max_shard_size), durable)

    @property
    def root(self) -> str:
        """The directory."""
        return self._root

    def save(
        self,
        step: int,
        state: Any,
        metrics: Mapping[str, Any] | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        ties: Ties = "share",
        sha256: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> str:
        """Save a step, complete or not at all; then remove older ones that no rule keeps.

        Args:
            step: Its number, from 0; one that is there is replaced.
            state: A dict of name to tensor, or any nested data; see `tensorkeep.save`.
            metrics: Name to number, such as `{"valid_loss": 0.25}`; NaN and infinities can be kept too.
            metadata: Free text by key, for each file.
            ties: What to do with tensors that share memory; see `tensorkeep.save`.
            sha256: Whether the index gets the SHA-256 of each file.
            progress: Called with the bytes done so far and the bytes in all.

        Returns:
            The directory of the step.

        Raises:
            StateError: If a value is no data, or a metric no number.
            SharedMemoryError: If tensors share memory and `ties` is `"error"`.
            DtypeError: If the format has no such dtype.
            TypeError: If metadata is not text.
            UnsupportedError: If the step has no such number, an argument is invalid, or a tensor has no data.
            HeaderError: If a name or text has no UTF-8 form, or is the one that the format keeps for itself.
            LimitError: If there are more names than a header can hold, or data is nested too deep.
            BusyError: If another process is saving the same step.
            TransportError: If the store cannot be written. All steps are then as they were.
        """
        record = self._record(step, metrics)
        options = {"metadata": metadata, "sha256": sha256, "progress": progress}
        self._writer.write(prepare(state, ties=ties), record, options)
        return self._directory_of(record.step)

    def save_async(
        self,
        step: int,
        state: Any,
        metrics: Mapping[str, Any] | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        ties: Ties = "share",
        sha256: bool = False,
        progress: Callable[[int, int], None] | None = None,
        max_waiting: int = 0,
    ) -> SaveHandle:
        """Save a step while training goes on; older ones are removed when it is complete, in the background too.

        The state is copied first; when this returns, all of it may be changed. See `tensorkeep.save_async`.

        Args:
            step: Its number, from 0.
            state: A dict of name to tensor, or any nested data.
            metrics: Name to number.
            metadata: Free text by key, for each file.
            ties: What to do with tensors that share memory.
            sha256: Whether the index gets the SHA-256 of each file.
            progress: Called with the bytes done so far and the bytes in all, by another thread.
            max_waiting: How many saves may wait, each with a copy of its own, while another is written.

        Returns:
            Tells when it is done, and whether it failed.

        Raises:
            StateError: If a value is no data, or a metric no number.
            SharedMemoryError: If tensors share memory and `ties` is `"error"`.
            DtypeError: If the format has no such dtype.
            UnsupportedError: If the step has no such number, an argument is invalid, or a tensor has no data.
            LimitError: If data is nested too deep.
            BaseException: What an earlier save to the store raised. What this one raises while it writes comes from
                the handle.
        """
        record = self._record(step, metrics)
        said = None if metadata is None else dict(metadata)
        options = {"metadata": said, "sha256": sha256, "progress": progress}

        def write(prepared: Prepared) -> None:
            self._writer.write(prepared, record, options)

        return save_in_background(
            partial(prepare, state, ties=ties),
            write,
            path=self._directory_of(record.step),
            place=os.path.realpath(self._root),
            max_waiting=max_waiting,
        )

    def _record(self, step: int, metrics: Mapping[str, Any] | None) -> StepRecord:
        record = StepRecord(check_step(step), metrics_of(metrics), time_text(datetime.now(UTC)))
        if self._retention.is_blind_to(record.metrics):
            warnings.warn(
                f"no step is kept as the best one: metrics have no `{self._retention.monitor}`, only"
                f" {', '.join(record.metrics):.200}. Open the store with monitor= one of these, or with keep_best=0",
                RetentionWarning,
                stacklevel=3,
            )
        return record

    def _directory_of(self, step: int) -> str:
        return os.path.join(self._root, step_name(step))

    def listing(self) -> list[StepListing]:
        """Return every step, whole or not, ascending; no tensor's data is read.

        Raises:
            SourceMissingError: If there is no such directory.
            TransportError: If the store cannot be read.
        """
        if not os.path.isdir(self._root):
            raise SourceMissingError("no store", path=self._root, found="nothing, or no directory")
        found = self._steps.newest_first()
        latest, best = latest_of(found), self._best_of(whole_metrics(found))
        return [
            StepListing(step, measure(step.path), step.step == latest, step.step == best)
            for step in sorted(found, key=lambda each: each.step)
        ]

    def steps(self) -> list[int]:
        """Return the steps that are whole, ascending: index and headers are as saved, and no file is cut off.

        Raises:
            TransportError: If the store cannot be read.
        """
        return list(whole_metrics(self._steps.survey()))

    def __iter__(self) -> Iterator[int]:
        return iter(self.steps())

    def __len__(self) -> int:
        return len(self.steps())

    def __contains__(self, step: object) -> bool:
        return step in self.steps()

    def latest(self) -> int | None:
        """Return the whole step that was saved last, whatever its number; None if there is none.

        Raises:
            TransportError: If the store cannot be read.
        """
        return latest_of(self._steps.newest_first())

    def best(self) -> int | None:
        """Return the whole step with the best metric, of equal ones the first; None if none has the metric.

        Raises:
            TransportError: If the store cannot be read.
        """
        return self._best_of(whole_metrics(self._steps.survey()))

    def _best_of(self, steps: Mapping[int, Mapping[str, float]]) -> int | None:
        return next(iter(best_steps(steps, self._retention.monitor, self._retention.mode)), None)

    def path_of(self, step: int) -> str:
        """Return the directory of a step, which need not be there.

        Args:
            step: Its number.

        Raises:
            UnsupportedError: If a step has no such number.
        """
        return self._directory_of(check_step(step))

    def metrics_of(self, step: int) -> dict[str, float]:
        """Return what was measured at a step.

        Args:
            step: Its number.

        Returns:
            Name to number; a new dict.

        Raises:
            SourceMissingError: If there is no such step.
            IntegrityError: If it is not whole.
            FormatError: If a file of it is malformed.
            UnsupportedError: If a step has no such number, no store wrote it, or it is of a later version.
            TransportError: If it cannot be read.
        """
        with self.open(step) as opened:
            record = read_record(opened.index.metadata)
        return {} if record is None else dict(record.metrics)

    def open(self, step: int, *, framework: str = "numpy", device: Any = "cpu") -> Checkpoint:
        """Open a step: a read-only mapping of name to `LazyTensor`; see `tensorkeep.open`.

        It stays readable if the step is removed meanwhile.

        Args:
            step: Its number.
            framework: The array library that tensors come out in.
            device: Where tensors go.

        Raises:
            SourceMissingError: If there is no such step, perhaps no longer.
            IntegrityError: If it is not whole.
            FormatError: If a file of it is malformed.
            UnsupportedError: If a step has no such number, no store wrote it, or it is of a later version.
            TransportError: If it cannot be read.
        """
        with naming_steps(self._steps):
            return open_step(self.path_of(step), OpenOptions(framework, device))

    def load(
        self,
        step: int | Literal["latest", "best"] = "latest",
        *,
        only: Selector | Iterable[Selector] | None = None,
        classes: Classes = (),
        ties: Ties = "share",
        framework: str | None = None,
        device: Any = "cpu",
        verify: bool = True,
    ) -> Any:
        """Read the state of a step.

        Args:
            step: Its number, `"latest"` (the one that was saved last) or `"best"`.
            only: Which parts; see `tensorkeep.load`.
            classes: Dataclasses, enums and named tuples that may be made again; see `tensorkeep.load`.
            ties: What to do with tensors that shared memory; see `tensorkeep.load`.
            framework: The array library that all tensors come out in; None for that which they were saved from.
            device: Where torch's tensors go.
            verify: Whether every byte of the step is held against its digest before anything is returned. If that
                of the latest fails, a `DamagedStepWarning` says so and the one saved before it is taken.

        Returns:
            What was saved.

        Raises:
            SourceMissingError: If there is no such step.
            IntegrityError: If it is not as it was saved.
            UnsupportedError: If an argument is invalid, no store wrote the step, or it is of a later version.
            FormatError: If what is said of the state is malformed.
            LimitError: If it is nested too deep, or a tensor has more dimensions than the framework allows.
            StateError: If one of `classes` is no class.
            TensorNotFoundError: If nothing is chosen.
            SharedMemoryError: If tensors share memory and `ties` is `"error"`.
            DtypeError: If a dtype is unknown here or to the framework.
            MissingDependencyError: If the library that tensors were saved from is not installed.
            TransportError: If it cannot be read.
        """

        def read(opened: Checkpoint) -> Any:
            return opened.load_tree(only=only, classes=classes, ties=ties, framework=framework, device=device)

        def load(path: str) -> Any:
            return load_step(path, OpenOptions(framework or _FRAMEWORK, device), read, checks=verify)

        if step == "latest":
            return load_newest(self._steps, load)
        if step != "best":
            check_name(step, self._steps)
            with naming_steps(self._steps):
                return load(self.path_of(step))
        while (best := self.best()) is not None:
            try:
                return load(self._directory_of(best))
            except SourceMissingError:
                if os.path.isdir(self._directory_of(best)):
                    raise  # else it was removed, as a better one had come
        return refuse_metric(self._steps, self._retention.monitor)

    def remove(self, step: int) -> None:
        """Remove a step, whatever the rules say; who has it open goes on reading.

        Args:
            step: Its number.

        Raises:
            SourceMissingError: If there is no such step.
            BusyError: If somebody is saving it.
            UnsupportedError: If a step has no such number.
            TransportError: If the store cannot be written.
        """
        with naming_steps(self._steps):
            remove_step(self._root, check_step(step))

    def __repr__(self) -> str:
        return f"CheckpointStore({self._root!r})"
