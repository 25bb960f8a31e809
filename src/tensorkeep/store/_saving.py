"""Saving a step, with clean-up before and retention after."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec

from tensorkeep.arrays import TensorToWrite
from tensorkeep.checkpoint import SaveOptions, write_checkpoint
from tensorkeep.encryption import Encryption
from tensorkeep.errors import SourceMissingError, TensorkeepError
from tensorkeep.formats.safetensors import Arrangement
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.safetensors import Checkpoint, SavedDirectory
from tensorkeep.layout import Index, shard_name
from tensorkeep.store._deltas import write_delta
from tensorkeep.store._layout import group_tensors
from tensorkeep.store._removal import outdated, remove_all
from tensorkeep.store._rules import RetentionWarning, Rules
from tensorkeep.store._steps import StepReader, newest_first
from tensorkeep.store.places import BASE_NAME, Place, Step, StepRecord, later_than, record_members
from tensorkeep.tensors import Prepared

Write: TypeAlias = Callable[[Prepared, str, SaveOptions], None]
"""Writes a prepared state to a directory, as `write_checkpoint` does."""

_ATTEMPTS: Final = 10
"""How often a step's directory is created again if another process removes it, still empty, as a leftover."""


class StepWriter(msgspec.Struct, frozen=True):
    """Saves steps, and removes the ones that no rule keeps.

    Attributes:
        place: Where the steps are.
        steps: Reads its steps.
        rules: Which steps are kept.
        max_shard_nbytes: Largest number of bytes of tensors in one file.
        durable: Whether saves wait until data is on the disk.
        arrangement: Where tensors go in each file.
        deltas: How many steps after a whole one may be patches.
        encryption: How steps are encrypted; None if they are not.
    """

    place: Place
    steps: StepReader
    rules: Rules
    max_shard_nbytes: int
    durable: bool
    arrangement: Arrangement
    deltas: int = 0
    encryption: Encryption | None = None

    def write(
        self, prepared: Prepared, record: StepRecord, options: Mapping[str, Any], write: Write = write_checkpoint
    ) -> None:
        """Save a step, completely or not at all, by a function; then remove steps that no rule keeps."""
        self.place.prepare(durable=self.durable)
        before = self.steps.survey()
        if self.place.sweep(before):
            before = self.steps.survey()
        record = _with_latest_time(record, before)
        self.rules.record(before)
        path = self.place.path_of(record.step)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._write(prepared, before, record, options, write)
                break
            except SourceMissingError as error:
                if attempt == _ATTEMPTS or not self.place.was_taken(path, error):
                    raise
        self._retain(record.step)

    def _write(
        self, prepared: Prepared, steps: list[Step], record: StepRecord, options: Mapping[str, Any], write: Write
    ) -> None:
        older = self._newest_two(steps)
        try:
            if self._writes_delta(prepared, record, options, older):
                return
            complete = SaveOptions(
                max_shard_nbytes=self.max_shard_nbytes,
                layout=_layout(prepared.to_write, [each.base for each in older], self.max_shard_nbytes),
                durable=self.durable,
                align=self.arrangement.align,
                order=self.arrangement.order,
                index_metadata=record_members(record),
                reuse=older[0].base if older else None,
                encryption=self.encryption,
                **options,
            )
            write(prepared, self.place.path_of(record.step), complete)
        finally:
            for opened in older:
                opened.close()

    def _writes_delta(
        self, prepared: Prepared, record: StepRecord, options: Mapping[str, Any], older: list[SavedDirectory]
    ) -> bool:
        """Save the step as a patch to the newest one, if that is wanted and saves space."""
        if not older or len(older[0].patch_files) >= self.deltas:
            return False
        return write_delta(self.place, older[0], prepared, record, options, durable=self.durable)

    def _newest_two(self, steps: list[Step]) -> list[SavedDirectory]:
        """Open the two last saved whole steps, the last one first."""
        opened: list[SavedDirectory] = []
        for step in newest_first(steps):
            if step.condition == "whole":
                with suppress(TensorkeepError):  # removed meanwhile, or damaged: it is not used
                    opened.append(self.place.open(step.step, OpenOptions(as_stored=True)))
            if len(opened) == 2:
                break
        return opened

    def _retain(self, saved: int) -> None:
        """Remove steps that no rule keeps."""
        rules = self.rules.agreed(stacklevel=4)
        if rules is None:
            return
        try:
            found = self.steps.survey()
            remove_all(self.place, outdated(rules, found, saved), found)
        except (TensorkeepError, OSError) as error:
            warnings.warn(f"{self.place.root}: could not remove old steps: {error}", RetentionWarning, stacklevel=4)


def _with_latest_time(record: StepRecord, steps: list[Step]) -> StepRecord:
    """Return a later time than all existing steps have, even if the clock was set back."""
    newest = max((step.record.saved_at for step in steps if step.record), default=None)
    return msgspec.structs.replace(record, saved_at=later_than(newest, record.saved_at))


def _layout(to_write: Mapping[str, TensorToWrite], older: list[Checkpoint], max_shard_nbytes: int) -> Index:
    """Lay out files as in the previous step, except that changed and unchanged tensors are separated."""
    resting: set[str] = set()
    if len(older) == 2:
        now, before = map(_digests, older)
        resting = {name for name, digest in now.items() if before.get(name) == digest}
    groups = group_tensors(
        {name: tensor.nbytes for name, tensor in to_write.items()},
        max_nbytes=max_shard_nbytes,
        before=[list(shard.entries) for shard in older[0].shards.values()] if older else (),
        resting=resting,
    )
    files = (shard_name(BASE_NAME, number, len(groups)) for number in range(1, len(groups) + 1))
    return Index({name: file for file, group in zip(files, groups, strict=True) for name in group})


def _digests(checkpoint: Checkpoint) -> dict[str, bytes]:
    """Return the digest of each tensor in the files."""
    return {
        name: digest
        for shard in checkpoint.shards.values()
        if shard.seal is not None
        for name, digest in zip(shard.entries, shard.seal.tensor_digests(), strict=True)
    }
