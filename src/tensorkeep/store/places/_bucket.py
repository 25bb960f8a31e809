"""Steps in a bucket: nothing can be renamed or locked, and several processes may do anything at once.

A step is in a directory of its own, `run/step-00000500/`: shards under names that no other save uses, and an index.

- A save commits by one conditional write of the index (`checkpoint/saving/_store_destination`). Steps share no
  objects: what did not change is copied by the store, so that a step can be removed without a look at the others.
- A removal begins with one conditional write, which replaces the very index that was looked at with a note that
  lists the files to delete. So the step is gone at once, and one that was saved again meanwhile stays. Then the
  listed files are deleted, and the note last; until then, a save of the same step waits. Only the note's writer
  removes it.
- One listing of the whole run says which steps there are, and whether their files have the sizes that the index says.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable
from typing import Final, NoReturn

from tensorkeep.checkpoint import remove_objects
from tensorkeep.errors import (
    AccessDeniedError,
    BusyError,
    FormatError,
    IntegrityError,
    LimitError,
    SourceChangedError,
    SourceMissingError,
    TensorkeepError,
    UnsupportedError,
)
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.safetensors import SavedDirectory
from tensorkeep.layout import Index, emit_removed, parse_index, parse_removed
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.store.places._listing import INDEX, REMOVAL_IS_DEAD_S, ListedStep, is_of_save, steps_in
from tensorkeep.store.places._names import MAX_RULES_NBYTES, RULES_NAME, step_name
from tensorkeep.store.places._open_step import foreign, open_step
from tensorkeep.store.places._record import StepRecord, read_record
from tensorkeep.store.places._step import Condition, Examined, Identity, Step, StepFiles
from tensorkeep.texts import listed
from tensorkeep.transport import ByteRange, RemotePath, RemoteSource, Version

_ATTEMPTS: Final = 10
"""How often a step is looked at again because it keeps being saved."""


class UnguardedStoreWarning(UserWarning):
    """A store has no conditional writes, so only one process at a time may save to a run."""


class BucketPlace:
    """Implements `Place`."""

    reads_cost = True
    can_link = False

    def __init__(self, url: str) -> None:
        self._root = RemotePath.of(url).joined("x").split()[0]  # without a slash at the end
        self._root.check_writable()
        self._seen: dict[int, ListedStep] = {}
        self._is_asked = False

    @property
    def root(self) -> str:
        """The URL, without secrets."""
        return self._root

    @property
    def key(self) -> str:
        """A digest of the URL and its options."""
        return self._root.fingerprint

    def path_of(self, step: int) -> RemotePath:
        """Return the URL of a step."""
        return self._root.joined(step_name(step))

    def holds(self, path: str) -> bool:
        """Say whether a step is there that is not being removed."""
        try:
            return parse_removed(_text_of(RemotePath.of(path).joined(INDEX).open())) is None
        except (SourceMissingError, AccessDeniedError):
            return False

    def require(self) -> None:
        """Refuse a run that has no objects."""
        if not self._root.objects():
            raise SourceMissingError("there is no store", path=self._root, found="no objects")

    def prepare(self, *, durable: bool) -> None:  # noqa: ARG002 - what a bucket has taken is kept
        """Warn of what a store without conditional writes cannot promise; there is no directory to create."""
        if self._is_asked:
            return
        known = self.read_note(RULES_NAME, MAX_RULES_NBYTES)
        is_guarded = self._root.joined(RULES_NAME).guards_swaps(known)
        self._is_asked = known is not None or not is_guarded
        if not is_guarded:
            warnings.warn(
                f"{self._root}: this store has no conditional writes. Every step is still saved completely or not at"
                " all, but only one process at a time may save to the run or remove steps from it",
                UnguardedStoreWarning,
                stacklevel=4,
            )

    def was_taken(self, path: str, error: SourceMissingError) -> bool:  # noqa: ARG002 - the protocol's
        """Return False: there are no directories that others could remove."""
        return False

    def look(self) -> dict[int, Identity]:
        """List the run."""
        self._seen = steps_in(self._root.objects())
        return {step: seen.identity for step, seen in self._seen.items()}

    def examine(self, step: int, identity: Identity) -> Examined | None:  # noqa: ARG002 - it is listed again
        """Read the index of a step, and compare the sizes that it says with the listed ones."""
        seen = self._seen.get(step)
        for _ in range(_ATTEMPTS):
            if seen is None or seen.index is None:
                break
            try:
                source = self.path_of(step).joined(INDEX).open()
                if seen.index.is_of(source.version):
                    found = self._found(step, seen, _text_of(source))
                    return Examined(found, seen.identity)
            except SourceMissingError:
                pass
            except (UnsupportedError, AccessDeniedError) as error:
                return Examined(self._with_problem(step, "unreadable", str(error)), None)
            seen = steps_in(self._root.objects()).get(step)  # it was saved again, or removed
        return None if seen is None else Examined(self._without_index(step, seen), None)

    def _found(self, step: int, seen: ListedStep, text: bytes) -> Step:
        if parse_removed(text) is not None:
            return self._with_problem(step, "incomplete", "it is being removed, or a removal was interrupted")
        path = self.path_of(step)
        try:
            index = parse_index(text, path.joined(INDEX))
        except (IntegrityError, FormatError, LimitError) as error:
            return self._with_problem(step, "damaged", str(error))
        record = read_record(index.metadata)
        if record is None or record.step != step:
            return self._with_problem(step, "foreign", str(foreign(path)))
        problem = _wrong_size(index, seen, path)
        return Step(step, path, "damaged" if problem else "whole", record, problem)

    def _without_index(self, step: int, seen: ListedStep) -> Step:
        if seen.others:
            names = listed(sorted(seen.others))
            return self._with_problem(step, "foreign", f"not a step of this store: {names}")
        return self._with_problem(step, "incomplete", "a save is in progress, or was interrupted")

    def _with_problem(self, step: int, condition: Condition, problem: str) -> Step:
        return Step(step, self.path_of(step), condition, None, problem)

    def open(self, step: int, options: OpenOptions) -> SavedDirectory:
        """Open a step."""
        path = self.path_of(step)
        with path.joined(INDEX).listing_cache() as index:
            return open_step(path, step, options, self.holds, entry=index)

    def appearing(self, step: int, *, durable: bool) -> NoReturn:  # noqa: ARG002 - the protocol's
        """Refuse: objects have one name each."""
        raise UnsupportedError("objects in a bucket have one name each", path=self._root)

    def measure(self) -> dict[int, StepFiles]:
        """Return the sizes that were last listed."""
        return {step: seen.files for step, seen in self._seen.items()}

    def read_note(self, name: str, max_nbytes: int) -> bytes | None:
        """Read an object beside the steps."""
        try:
            source = self._root.joined(name).open()
        except SourceMissingError:
            return None
        return bytes(source.read(ByteRange(0, min(source.nbytes, max_nbytes))))

    def write_note(self, name: str, text: bytes, *, durable: bool) -> None:  # noqa: ARG002 - the protocol's
        """Replace an object beside the steps."""
        path = self._root.joined(name)
        try:
            before = path.version()
        except SourceMissingError:
            before = None
        path.swap(text, before)

    def remove(self, step: int, seen: Step | None = None) -> None:
        """Replace the index by a note, and remove what it lists."""
        path = self.path_of(step)
        source = path.joined(INDEX).open()
        text = _text_of(source)
        if parse_removed(text) is not None:
            raise _busy(path)
        index = _readable(text, check=False)
        record = _record_in(text)
        if seen is not None and record != seen.record:
            raise _busy(path)
        if record is None and _readable(text, check=True) is not None:
            raise foreign(path)
        self._remove(path, source.version, filter(is_of_save, (*index.files, *index.sidecars) if index else ()))

    def _remove(self, path: RemotePath, before: Version, files: Iterable[str]) -> None:
        names = sorted(files)
        index = path.joined(INDEX)
        try:
            index.swap(emit_removed(names), before)
        except SourceChangedError:
            raise _busy(path) from None
        began = time.monotonic()
        errors = remove_objects(path, names)
        if errors:
            raise errors[0]
        if time.monotonic() - began < REMOVAL_IS_DEAD_S / 2:  # else another process may take this one for dead
            index.remove()

    def sweep(self, steps: Iterable[Step]) -> bool:
        """Remove what is too old to be of a living process, as the listing was when the steps were looked at."""
        swept = [self._sweep(step, self._seen[step.step]) for step in steps if step.step in self._seen]
        return any(swept)

    def _sweep(self, step: Step, seen: ListedStep) -> bool:
        """Finish a dead removal, and remove the files of dead saves that no index names."""
        may_have_dead = bool(seen.dead(()))
        if not may_have_dead and not (step.condition == "incomplete" and seen.index):
            return False
        path = self.path_of(step.step)
        try:
            named: Iterable[str] = ()
            if seen.index is not None:
                source = path.joined(INDEX).open()
                if not seen.index.is_of(source.version):
                    return False  # it was saved since: next time
                text = _text_of(source)
                going = parse_removed(text)
                if going is not None:
                    if seen.is_older(INDEX, REMOVAL_IS_DEAD_S):
                        self._remove(path, source.version, going)
                    return True
                index = parse_index(text, path)
                named = (*index.files, *index.sidecars)
            return not remove_objects(path, seen.dead(set(named)))
        except TensorkeepError:  # what cannot be read now is not touched
            return False


def _text_of(source: RemoteSource) -> bytes:
    return bytes(source.read(ByteRange(0, min(source.nbytes, MAX_INDEX_NBYTES + 1))))


def _readable(text: bytes, *, check: bool) -> Index | None:
    try:
        return parse_index(text, INDEX, check=check)
    except (FormatError, IntegrityError, LimitError):
        return None


def _record_in(text: bytes) -> StepRecord | None:
    index = _readable(text, check=True)
    return read_record(index.metadata) if index else None


def _wrong_size(index: Index, seen: ListedStep, path: RemotePath) -> str | None:
    """Say which file is missing or has another size than the index says."""
    for name, shard in (index.shards or {}).items():
        listed = seen.objects.get(name)
        try:
            nbytes = listed.nbytes if listed else path.joined(name).version().nbytes  # a listing may lag behind
        except SourceMissingError:
            return f"{name} is missing"
        if nbytes != shard.nbytes:
            return f"{name} has {nbytes:,} bytes, expected {shard.nbytes:,}"
    return None


def _busy(path: RemotePath) -> BusyError:
    return BusyError("another process has just saved or removed the step", path=path, hint="Look at it again")
