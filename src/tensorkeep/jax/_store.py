"""`CheckpointStore` of JAX: steps of pytrees, saved and restored by all processes of a job together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias, cast

import jax

from tensorkeep import store
from tensorkeep.checkpoint import SaveHandle, SaveOptions, raise_earlier
from tensorkeep.jax._load import read_tree
from tensorkeep.jax.meshes import ALIGNMENT_NBYTES, TIMEOUT_S, Meeting, TogetherSave, Write, check_timeout, meet
from tensorkeep.jax.trees import capture
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.safetensors import SavedDirectory
from tensorkeep.parallel import Progress
from tensorkeep.store import StepRecord, read_record
from tensorkeep.tensors import Prepared, Ties, prepare

StepContents: TypeAlias = tuple[Any, Mapping[str, Any] | None, Mapping[str, str] | None]
"""What a step holds: plain nested data, metrics, and metadata."""


class CheckpointStore(store.CheckpointStore):
    """A `tensorkeep.CheckpointStore` whose steps are pytrees, such as Flax's `TrainState`: last, best, resume.

        store = tensorkeep.jax.CheckpointStore("run", keep_last=3, monitor="loss")
        store.save(step, state, {"loss": loss})
        state = store.restore("best", like=state)

    In a job of several processes (`jax.distributed`), all of them call `save`, `save_async` and `restore`, in one
    order and with equal trees. They save one checkpoint together, as `tensorkeep.jax.save` does, and the first one
    applies the rules; each restores its own shards. Tensors are aligned to 64 bytes, so that JAX shares the memory
    of mapped files.

    It takes the arguments of `tensorkeep.CheckpointStore` but `deltas`, and has its other methods.
    """

    _ALIGNMENT_NBYTES: ClassVar[int] = ALIGNMENT_NBYTES
    _SAVES_DELTAS: ClassVar[bool] = False

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
        timeout_s: float = TIMEOUT_S,
    ) -> str:
        """Save a step, completely or not at all; then remove old ones that no rule keeps.

        Args:
            step: Its number, from 0. An existing step with this number is replaced.
            state: Any pytree; see `tensorkeep.jax.save`.
            metrics: Metric name to value, such as `{"loss": 0.25}`.
            metadata: Text by key, stored in each file.
            ties: What to do with arrays that are in the tree more than once; see `tensorkeep.jax.save`.
            sha256: Whether to store the SHA-256 of each file in the shard index.
            progress: Called with the bytes done so far and the total; not if processes save together.
            timeout_s: Seconds without a sign of life from any process after which a joint save fails.

        Returns:
            The directory of the step.

        Raises:
            StateError: If a leaf is not data, a metric is not a number, or processes pass different trees.
            SharedMemoryError: If an array is in the tree more than once and `ties` is `"error"`.
            DtypeError: If safetensors has no such dtype.
            TypeError: If `metadata` is not text.
            UnsupportedError: If the step number or another argument is invalid, or an array has no data.
            HeaderError: If a name or text is not valid Unicode, or is reserved by the format.
            LimitError: If there are more names than a header can hold, or data is nested too deep.
            BusyError: If another process is saving the same step.
            TransportError: If the store cannot be written, or a process gives no sign of life. All steps are then as
                they were.
        """
        if jax.process_count() == 1:
            check_timeout(timeout_s)
            state, metrics, metadata = self._contents(state, metrics, metadata)
            return super().save(step, state, metrics, metadata=metadata, ties=ties, sha256=sha256, progress=progress)
        with meet(timeout_s) as meeting:
            state, metrics, metadata = self._contents(state, metrics, metadata)
            record = self._record(step, metrics)
            together = self._together(meeting, prepare(state, ties=ties), record, metadata, sha256=sha256)
        together.run()
        return self.path_of(step)

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
        timeout_s: float = TIMEOUT_S,
    ) -> SaveHandle:
        """Save a step in the background while training continues; its arrays are copied first, and may be donated.

        Args:
            step: Its number, from 0. An existing step with this number is replaced.
            state: Any pytree; see `tensorkeep.jax.save`.
            metrics: Metric name to value, such as `{"loss": 0.25}`.
            metadata: Text by key, stored in each file.
            ties: What to do with arrays that are in the tree more than once; see `tensorkeep.jax.save`.
            sha256: Whether to store the SHA-256 of each file in the shard index.
            progress: Called by another thread, as in `save`.
            max_waiting: How many saves may wait, each with its own copy in memory, while another is written.
            timeout_s: Seconds without a sign of life from any process after which a joint save fails.

        Returns:
            A handle to wait for the save, and to see whether it failed.

        Raises:
            StateError: If a leaf is not data, or a metric is not a number.
            SharedMemoryError: If an array is in the tree more than once and `ties` is `"error"`.
            DtypeError: If safetensors has no such dtype.
            UnsupportedError: If the step number or another argument is invalid, or an array has no data.
            LimitError: If data is nested too deep.
            BaseException: What an earlier save to this store raised. This save has then not begun, unless processes
                save together. Errors while this step is written are raised by the handle.
        """
        if jax.process_count() == 1:
            check_timeout(timeout_s)
            state, metrics, metadata = self._contents(state, metrics, metadata)
            return super().save_async(
                step,
                state,
                metrics,
                metadata=metadata,
                ties=ties,
                sha256=sha256,
                progress=progress,
                max_waiting=max_waiting,
            )
        with meet(timeout_s) as meeting:
            state, metrics, metadata = self._contents(state, metrics, metadata)
            record = self._record(step, metrics)
            together = self._together(meeting, prepare(state, ties=ties), record, metadata, sha256=sha256)
            handle = together.in_background(place=self._place.key, max_waiting=max_waiting)
        raise_earlier(self._place.key)
        return handle

    def restore(
        self,
        step: int | Literal["latest", "best"] = "latest",
        *,
        like: Any = None,
        shardings: Any = None,
        strict: bool = True,
        verify: bool = True,
        progress: Progress | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Any:
        """Restore the pytree of a step, with the classes and static fields of a template.

        In a job of several processes, the first one chooses the step, and checks it if `verify`; then each reads its
        own shards.

        Args:
            step: Its number, `"latest"` (the one saved last) or `"best"`.
            like: A pytree with the structure that was saved; see `tensorkeep.jax.load`.
            shardings: Where arrays go; see `tensorkeep.jax.load`.
            strict: Whether to refuse leaves that only the step has.
            verify: Whether to check every byte of the step against its digest first. If the latest step is damaged,
                it issues a `DamagedStepWarning`, and the one saved before it is restored.
            progress: Called with the bytes done so far and the total, first while the step is verified.
            timeout_s: Seconds without a sign of life from the first process after which the others give up.

        Returns:
            A tree like the template.

        Raises:
            StateDictMismatchError: If something does not fit; `missing`, `unexpected`, `mismatched` have all names.
            SourceMissingError: If there is no such step, or for `"latest"` no whole one.
            IntegrityError: If the step is damaged.
            FormatError: If one of its files is malformed.
            DtypeError: If JAX has no such dtype.
            LimitError: If something exceeds a bound.
            UnsupportedError: If an argument is invalid, or the step needs a later version.
            TransportError: If it cannot be read, or the first process gives no sign of life.
        """
        opening = OpenOptions("jax")

        def read(opened: SavedDirectory) -> Any:
            return read_tree(opened, like, shardings, strict=strict, progress=progress)

        if jax.process_count() == 1:
            check_timeout(timeout_s)
            return self._loader.load(step, opening, read, checks=verify, progress=progress)

        def choose(beat: Callable[[], None]) -> int:
            def report(done: int, total: int) -> None:
                beat()
                if progress is not None:
                    progress(done, total)

            return self._loader.load(step, opening, _number_of, checks=verify, progress=report)

        with meet(timeout_s) as meeting:
            call = {"function": "restore", "store": str(self.root), "step": f"{step!r:.100}"}
            chosen = meeting.decide(call, choose)
        return self._loader.load(chosen, opening, read, checks=False)

    def _contents(
        self, state: Any, metrics: Mapping[str, Any] | None, metadata: Mapping[str, str] | None
    ) -> StepContents:
        """Return what a step holds, of what `save` was given."""
        return capture(state), metrics, metadata

    def _together(
        self,
        meeting: Meeting,
        prepared: Prepared,
        record: StepRecord,
        metadata: Mapping[str, str] | None,
        *,
        sha256: bool,
    ) -> TogetherSave:
        """Return the save of a step; the first process looks after the store beside its share."""
        metadata = None if metadata is None else dict(metadata)
        options = SaveOptions(
            max_shard_nbytes=self._writer.max_shard_nbytes,
            metadata=metadata,
            sha256=sha256,
            durable=self._writer.durable,
            encryption=self._writer.encryption,
        )
        of_step = {"metadata": metadata, "sha256": sha256}

        def coordinate(prepared: Prepared, write: Write) -> None:
            self._writer.write(prepared, record, of_step, write)

        return TogetherSave(meeting, prepared, self.path_of(record.step), options, coordinate)


def _number_of(opened: SavedDirectory) -> int:
    return cast(StepRecord, read_record(opened.index_metadata)).step  # without it, it is not opened as a step
