"""Checkpoints of a Trainer in a bucket: steps of a store, each with all that a local one has in its directory.

    {"model.safetensors": {name: tensor}, "training_state/optimizer.safetensors": {…},
     "files": {"config.json": its bytes as an array, …}}

Libraries know local files only: a checkpoint is saved to a temporary directory and sent, or received into one.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import numpy as np
from accelerate.utils import gather_object

from tensorkeep.checkpoint import load, verify
from tensorkeep.errors import FormatError, IntegrityError, SourceMissingError, TensorkeepError
from tensorkeep.kinds import refuse
from tensorkeep.kinds.safetensors import read_index
from tensorkeep.layout import stem_of_index, weights_name
from tensorkeep.paths import is_inside
from tensorkeep.store import CheckpointStore, RetentionWarning, load_newest_whole
from tensorkeep.tensors import save

STATE: Final = "trainer_state.json"
_FILES: Final = "files"
_TENSORS: Final = ".safetensors"
_METRIC: Final = "eval_"


class _State(msgspec.Struct):
    global_step: int


class BucketRun:
    """The checkpoints of a run at a URL; the Trainer's own limit says which are kept."""

    def __init__(self, url: str, monitor: str | None = None, *, greater_is_better: bool | None = None) -> None:
        rules: dict[str, Any] = {} if monitor is None else {"monitor": f"{_METRIC}{monitor.removeprefix(_METRIC)}"}
        if greater_is_better is not None:
            rules["mode"] = "max" if greater_is_better else "min"
        self._store = CheckpointStore(url, keep_last=None, keep_best=0, **rules)

    @property
    def url(self) -> str:
        """Where it is."""
        return self._store.root

    def path_of(self, step: int) -> str:
        """Return the URL of a checkpoint."""
        return self._store.path_of(step)

    def best_of(self, state: Any) -> str | None:
        """Return the URL of the best checkpoint by the state of a Trainer, if it is there."""
        best = state.best_global_step
        return self.path_of(best) if best and best in self._store else None

    def save(self, folder: str, state: Any) -> None:
        """Save what is in a directory, completely or not at all, with what was measured at this step."""
        replace(state, best_model_checkpoint=None).save_to_json(os.path.join(folder, STATE))  # its step says which
        self._store.save(state.global_step, _packed(folder), _metrics_in(state))

    def read_newest(self) -> tuple[str, Any]:
        """Return the URL and the content of the checkpoint that was saved last and is whole; warn of newer ones."""
        if not len(self._store):
            raise SourceMissingError("there is no whole checkpoint", path=self.url)
        content = self._store.load("latest")
        return self.path_of(_step_of(content, self.url)), content

    def newest(self, on_damage: Callable[[str, TensorkeepError], None], *, verifies: bool) -> str | None:
        """Return the URL of the checkpoint that was saved last and is whole, which is verified first or not."""

        def newest_first() -> list[str]:
            found = {each.found.path: each.found for each in self._store.listing() if each.found.record}
            steps.update(found)
            return sorted(found, key=lambda path: _time_of(found[path]), reverse=True)

        def check(path: str) -> None:
            if steps[path].problem:
                raise IntegrityError(steps[path].problem, path=path)
            if verifies:
                refuse(verify(path).findings, path)

        steps: dict[str, Any] = {}
        found = load_newest_whole(newest_first, check, on_damage, is_there=lambda path: path in newest_first())
        return None if found is None else found[0]

    def remove_old(self, state: Any, limit: int | None) -> None:
        """Remove the oldest whole checkpoints beyond the limit; damaged ones do not count, and stay."""
        if limit is None or limit <= 0:
            return
        try:
            found = [each.found for each in self._store.listing() if each.found.record]
            whole = [each.step for each in sorted(found, key=_time_of) if each.condition == "whole"]
            kept = {state.global_step, state.best_global_step}.intersection(whole)
            others = [step for step in whole if step not in kept]
            for step in others[: max(len(whole) - max(limit, len(kept)), 0)]:
                self._store.remove(step)
        except TensorkeepError as error:  # no reason to end a run
            warnings.warn(f"{self.url}: could not remove an old checkpoint: {error}", RetentionWarning, stacklevel=3)


def _time_of(step: Any) -> str:
    return str(step.record.saved_at)


def _metrics_in(state: Any) -> dict[str, float]:
    """Return what was measured at the present step."""
    present = (entry for entry in state.log_history if entry.get("step") == state.global_step)
    metrics = (member for entry in present for member in entry.items() if member[0].startswith(_METRIC))
    return {name: value for name, value in metrics if isinstance(value, int | float)}


def _packed(folder: str) -> dict[str, Any]:
    """Return what is in a directory as a state, whose tensors are not read yet."""
    files: dict[str, Any] = {}
    packed: dict[str, Any] = {_FILES: files}
    for place, _, names in os.walk(folder):
        indexes = {name: stem for name in names if (stem := stem_of_index(name))}
        shards = {shard for name in indexes for shard in read_index(os.path.join(place, name)).files}
        for name in sorted({*names} - shards):
            path = os.path.join(place, name)
            as_one = os.path.join(place, weights_name(indexes[name]) if name in indexes else name)
            inner = os.path.relpath(as_one, folder).replace(os.sep, "/")
            if inner.endswith(_TENSORS):
                packed[inner] = load(path)
            else:
                files[inner] = np.fromfile(path, np.uint8)
    return packed


@contextmanager
def receiving(
    wanted: BucketRun | str | None, args: Any, agreed: Callable[[Callable[[], str]], str]
) -> Iterator[tuple[str, str]]:
    """Yield a directory with a checkpoint, the same for all processes of a node, and its URL.

    The first process chooses the newest one of a run; then the first of each other node receives the same.
    """
    with TemporaryDirectory(prefix="tensorkeep-") as own:

        def receive(chosen: Any) -> str:
            url, content = (
                chosen.read_newest() if isinstance(chosen, BucketRun) else (chosen, load(chosen, verify=True))
            )
            _unpack(content, own, url)
            return url

        url = agreed(lambda: receive(wanted))
        refused: TensorkeepError | None = None
        if args.local_process_index == 0 and args.process_index != 0:
            try:
                receive(url)
            except TensorkeepError as raised:
                refused = raised
        outcomes: list[tuple[str, TensorkeepError | None]] = gather_object([(own, refused)])
        for _, error in outcomes:
            if error is not None:
                raise error
        yield outcomes[args.process_index - args.local_process_index][0], url


def _unpack(content: Any, folder: str, url: str) -> None:
    """Write what was read to a directory."""
    _step_of(content, url)
    for name, of_file in _files_in(content, url):
        path = os.path.join(folder, *name.split("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if isinstance(of_file, np.ndarray):
            of_file.tofile(path)
        else:
            save(of_file, path, durable=False)


def _step_of(content: Any, url: str) -> int:
    """Return the step in the state of a Trainer."""
    try:
        return msgspec.json.decode(content[_FILES][STATE].tobytes(), type=_State).global_step
    except (KeyError, TypeError, AttributeError, msgspec.MsgspecError, UnicodeDecodeError):
        raise FormatError(
            "not a checkpoint that a Trainer saved", path=url, expected=f"{_FILES!r} with a {STATE}"
        ) from None


def _files_in(content: Mapping[Any, Any], url: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and content of each file; none leads out of the directory."""
    tensors = {name: tree for name, tree in content.items() if name != _FILES}
    for name, of_file in (*content[_FILES].items(), *tensors.items()):
        kind = Mapping if name in tensors else np.ndarray
        if not isinstance(name, str) or not is_inside(name) or not isinstance(of_file, kind):
            raise FormatError("not a file of a checkpoint", path=url, found=f"{name!r:.100}")
        yield name, of_file
