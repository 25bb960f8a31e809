"""`CheckpointStore`: the checkpoints of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar

from msgspec import UNSET, UnsetType

from tensorkeep.checkpoint import SaveHandle, save_in_background
from tensorkeep.encryption import Encryption, KeyLike, Keys
from tensorkeep.errors import UnsupportedError
from tensorkeep.formats.safetensors import ALIGNMENT_NBYTES, Arrangement
from tensorkeep.layout import parse_size
from tensorkeep.limits import MAX_PATCHES
from tensorkeep.store._deltas import USUAL_PATCHES
from tensorkeep.store._reading import SavedSteps
from tensorkeep.store._removal import outdated, remove_all
from tensorkeep.store._retention import Mode
from tensorkeep.store._rules import GivenRules, Rules
from tensorkeep.store._saving import StepWriter
from tensorkeep.store._step_errors import listing_steps
from tensorkeep.store.places import StepRecord, check_step, metrics_of, place_of, time_text
from tensorkeep.tensors import Prepared, Ties, prepare


class CheckpointStore(SavedSteps):
    """The checkpoints of a run in one directory or bucket, one sub-directory per step: `root/step-00000500`.

    Each step is a checkpoint in the Hugging Face layout that any reader can open. It appears complete or not at all,
    so an interrupted one never counts. Files whose tensors did not change since the previous step are hard links to
    its files, which are verified first; either step can be removed. Several processes may use one store.

    In a bucket, such files are copied within the bucket instead of being sent again. Steps are found by a listing,
    which includes the sizes of files; a load checks the bytes that it reads. Leftovers of dead processes are removed
    when they are a day old. If the file system has no conditional writes, an `UnguardedStoreWarning` is issued: only
    one process at a time may save there.

    Old steps are removed only when a new one is complete. One rule is enough to keep a step: it is among the last
    ones, the best ones, or the multiples of a number. "Last" means saved last, whatever the numbers: if a run goes
    back from step 500 to 300 and saves 310, the abandoned steps go first. The step just saved and directories that
    were not written by a store are never removed. Damaged steps stay, for you to look at, until there are `keep_last`
    whole ones with higher numbers. The next save removes what dead processes left.

    The first save records the rules in the directory. A rule that you leave out keeps its recorded value. Rules that
    keep more replace the recorded ones; under any others no step is removed, and a `RetentionWarning` says so once.

    Args:
        root: The directory, which the first save creates, or its URL in a store: s3, gs, az, any that fsspec can
            write to, or a result of `tensorkeep.remote`. A relative path is resolved now, and `~` is the user's home.
        keep_last: How many of the last saved steps to keep; None for all. A new store keeps 3.
        keep_best: How many of the best steps to keep; None for all that have the metric. A new store keeps 1.
        monitor: Name of the metric that decides which step is best, `"valid_loss"` in a new store; NaN never is. A
            save whose metrics lack it issues a `RetentionWarning`.
        mode: Whether the minimum (`"min"`, for a new store or metric) or the maximum (`"max"`) is best; of equal
            ones, the lowest step.
        keep_every: Keep all steps that are multiples of this; None for no such rule.
        prune: Whether the rules given here replace the recorded ones even if that removes steps.
        max_shard_size: Largest size of a file: a number of bytes, or text such as `"512MB"`.
        durable: Whether saves wait until data is on the disk (fsync), so that even a power cut cannot lose it.
        align: Bytes at whose multiples tensors begin, if their size is one too; see `tensorkeep.save`. None: 8.
        order: Names or shell patterns whose tensors come first in each file, in this order; see `tensorkeep.save`.
        deltas: Whether to save steps as patches to the previous step, bit for bit: True, or how many such steps may
            follow a whole one (True means 20). Every step can still be removed or copied alone, since its directory
            also has the files of the last whole step, as hard links. `tensorkeep` reads such steps; for other
            programs, convert them. A step is saved whole if its patch would take more than half of its bytes, or if
            tensors share parts of their memory.
        encrypt: The key to encrypt steps with, the path of a file with it, or an `Encryption`. Steps then share no
            files. Numbers, metrics and times of steps stay visible, so that listings and rules need no key. Steps
            are read only with this key, and refused if they are not encrypted. Without `encrypt`, encrypted steps are
            read with a key from the environment.

    Raises:
        UnsupportedError: If an argument is invalid, or `root` is the URL of a server that cannot be written to.
        TransportError: If `root` is a file.

    Examples:
        >>> store = tensorkeep.CheckpointStore("run", keep_last=3, monitor="loss")
        >>> path = store.save(500, {"w": numpy.eye(2)}, {"loss": 0.25})
        >>> state = store.load("best")
    """

    _ALIGNMENT_NBYTES: ClassVar[int] = ALIGNMENT_NBYTES
    _SAVES_DELTAS: ClassVar[bool] = True

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        keep_last: int | UnsetType | None = UNSET,
        keep_best: int | UnsetType | None = UNSET,
        monitor: str | UnsetType = UNSET,
        mode: Mode | UnsetType = UNSET,
        keep_every: int | UnsetType | None = UNSET,
        prune: bool = False,
        max_shard_size: int | str = "512MB",
        durable: bool = True,
        align: int | None = None,
        order: Sequence[str] | None = None,
        deltas: bool | int = False,
        encrypt: KeyLike | Encryption | None = None,
    ) -> None:
        place = place_of(root)
        given = GivenRules(keep_last, keep_best, keep_every, monitor, mode)
        encryption = Encryption.of(encrypt)
        keys = None if encryption is None else Keys.given(encryption.key)
        super().__init__(place, Rules(place, given, prunes=prune, durable=durable), keys)
        arrangement = Arrangement.of(self._ALIGNMENT_NBYTES if align is None else align, order)
        nbytes = parse_size(max_shard_size)
        n_deltas = self._number_of(deltas)
        if n_deltas and encryption is not None:
            raise UnsupportedError("encrypted steps are saved whole", path=self.root, found="deltas=")
        self._writer = StepWriter(place, self._steps, self._rules, nbytes, durable, arrangement, n_deltas, encryption)

    def _number_of(self, deltas: bool | int) -> int:
        is_number = hasattr(deltas, "__index__")
        number = USUAL_PATCHES if deltas is True else deltas.__index__() if is_number else -1
        if number and not self._place.can_link:
            raise UnsupportedError(
                "steps in a bucket are not saved as deltas: each would need a copy of the whole step before it",
                path=self.root,
                found=f"deltas={deltas}",
                hint="Leave deltas out: files that did not change are not sent. To send only what changes, publish"
                " patches to the bucket with tensorkeep.patches.Publisher",
            )
        if number and not self._SAVES_DELTAS:
            raise UnsupportedError(
                "only a single process can save steps as deltas", path=self.root, found=f"deltas={deltas}"
            )
        if not 0 <= number <= MAX_PATCHES:
            raise UnsupportedError(
                "the number of deltas is out of range",
                expected=f"True, False, or up to {MAX_PATCHES}",
                found=repr(deltas),
            )
        return number

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
        """Save a step, completely or not at all; then remove old ones that no rule keeps.

        Args:
            step: Its number, from 0. An existing step with this number is replaced.
            state: A dict of name to tensor, or any nested data; see `tensorkeep.save`.
            metrics: Metric name to value, such as `{"valid_loss": 0.25}`; NaN and infinities are allowed.
            metadata: Text by key, stored in each file.
            ties: What to do with tensors that share memory; see `tensorkeep.save`.
            sha256: Whether to store the SHA-256 of each file in the shard index.
            progress: Called with the bytes done so far and the total.

        Returns:
            The directory of the step, or its URL.

        Raises:
            StateError: If a value is not data, or a metric is not a number.
            SharedMemoryError: If tensors share memory and `ties` is `"error"`.
            DtypeError: If safetensors has no such dtype.
            TypeError: If `metadata` is not text.
            UnsupportedError: If the step number or another argument is invalid, or a tensor has no data.
            HeaderError: If a name or text is not valid Unicode, or is reserved by the format.
            LimitError: If there are more names than a header can hold, or data is nested too deep.
            BusyError: If another process is saving the same step, or in a bucket removing it.
            SourceChangedError: If another process has saved the same step in the bucket meanwhile.
            TransportError: If the store cannot be written. All steps are then as they were.
        """
        record = self._record(step, metrics)
        options = {"metadata": metadata, "sha256": sha256, "progress": progress}
        self._writer.write(prepare(state, ties=ties), record, options)
        return self._place.path_of(record.step)

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
        """Save a step in the background while training continues; old steps are removed when it is complete.

        The state is copied first: it may be changed as soon as this returns. See `tensorkeep.save_async`.

        Args:
            step: Its number, from 0. An existing step with this number is replaced.
            state: A dict of name to tensor, or any nested data; see `tensorkeep.save`.
            metrics: Metric name to value, such as `{"valid_loss": 0.25}`.
            metadata: Text by key, stored in each file.
            ties: What to do with tensors that share memory; see `tensorkeep.save`.
            sha256: Whether to store the SHA-256 of each file in the shard index.
            progress: Called with the bytes done so far and the total, by another thread.
            max_waiting: How many saves may wait, each with its own copy in memory, while another is written.

        Returns:
            A handle to wait for the save, and to see whether it failed.

        Raises:
            StateError: If a value is not data, or a metric is not a number.
            SharedMemoryError: If tensors share memory and `ties` is `"error"`.
            DtypeError: If safetensors has no such dtype.
            UnsupportedError: If the step number or another argument is invalid, or a tensor has no data.
            LimitError: If data is nested too deep.
            BaseException: What an earlier save to this store raised. Errors while this step is written are raised by
                the handle.
        """
        record = self._record(step, metrics)
        options = {"metadata": metadata and dict(metadata), "sha256": sha256, "progress": progress}

        def write(prepared: Prepared) -> None:
            self._writer.write(prepared, record, options)

        return save_in_background(
            partial(prepare, state, ties=ties),
            write,
            path=self._place.path_of(record.step),
            place=self._place.key,
            max_waiting=max_waiting,
        )

    def _record(self, step: int, metrics: Mapping[str, Any] | None) -> StepRecord:
        record = StepRecord(check_step(step), metrics_of(metrics), time_text(datetime.now(UTC)))
        self._rules.warn_if_blind_to(record.metrics, stacklevel=3)
        return record

    def remove(self, step: int) -> None:
        """Remove a step, whatever the rules say. Processes that have it open can still read it.

        Args:
            step: Its number.

        Raises:
            SourceMissingError: If there is no such step.
            BusyError: If it is being saved.
            UnsupportedError: If the number is invalid.
            TransportError: If the store cannot be written.
        """
        with listing_steps(self._steps):
            self._place.remove(check_step(step))

    def prune(self, *, dry_run: bool = False) -> list[int]:
        """Remove the steps that no rule keeps, and record the rules given to this object in the store.

        Args:
            dry_run: Whether to change nothing, and only return what would be removed.

        Returns:
            The numbers of the removed steps, ascending. A step that is being saved stays.

        Raises:
            SourceMissingError: If the directory does not exist.
            UnsupportedError: If the store has no recorded rules and none were given, or if they need a later version.
            FormatError: If the recorded rules are damaged and none were given.
            TransportError: If the store cannot be written.
        """
        self._place.require()
        rules = self._rules.imposed()
        found = self._steps.survey()
        steps = outdated(rules, found)
        if dry_run:
            return steps
        self._rules.replace(rules)
        return remove_all(self._place, steps, found)

    def __repr__(self) -> str:
        return f"CheckpointStore({self.root!r})"
