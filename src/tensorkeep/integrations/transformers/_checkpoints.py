"""The checkpoints in the output directory of a Trainer: which are whole, which is the newest, which to remove."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator
from typing import Final, NoReturn

from transformers.trainer_utils import sort_checkpoints

from tensorkeep.checkpoint import open_checkpoint, verify, verify_folder
from tensorkeep.errors import IntegrityError, SourceMissingError, TensorkeepError, as_transport_error
from tensorkeep.integrations.transformers._buckets import BucketRun
from tensorkeep.kinds import refuse
from tensorkeep.kinds.folder import has_manifest
from tensorkeep.store import DamagedCheckpointWarning, load_newest_whole
from tensorkeep.transport import delete_moved_aside, is_in_store, local_path, move_aside, recover_directories

_match_name = re.compile(r"checkpoint-(?P<step>[0-9]+)").fullmatch
_is_of_plain_trainer = re.compile(
    r"(optimizer|scheduler|scaler)\.pt|rng_state.*\.pth|training_args\.bin"
    r"|(pytorch_model|model|adapter_model)(-[0-9]{5}-of-[0-9]{5})?\.(bin|safetensors)(\.index\.json)?"
).fullmatch
_STATE: Final = "trainer_state.json"
_N_LISTED: Final = 10
"""Checkpoints in a message."""
_WEIGHTS: Final = tuple(
    f"{stem}{ending}"
    for stem, kind in (
        ("model", "safetensors"),
        ("adapter_model", "safetensors"),
        ("pytorch_model", "bin"),
        ("adapter_model", "bin"),
    )
    for ending in (f".{kind}.index.json", f".{kind}")
)
"""Files by which the weights of models and adapters are opened."""


def get_last_checkpoint(folder: str | os.PathLike[str], *, verify: bool = True) -> str | None:
    """Find the newest checkpoint of a Trainer that is whole.

    Damaged and incomplete checkpoints are passed over with a `DamagedCheckpointWarning`. A checkpoint of
    `transformers.Trainer` has no digests: it counts as whole if its last file, `trainer_state.json`, exists, and
    weights, optimizer and the like can be opened.

    Args:
        folder: The output directory of the Trainer, or its URL.
        verify: Whether to check every byte against its digest. Sizes, headers and small files are always checked.

    Returns:
        The path of the whole checkpoint with the highest step, in a bucket of the one saved last; None if there is
        none.

    Raises:
        SourceMissingError: If the folder does not exist.
        TransportError: If it cannot be read.
    """
    if is_in_store(folder):
        return BucketRun(os.fspath(folder)).newest(_warn_of_damage, verifies=verify)
    directory = local_path(folder)
    found = load_newest_whole(
        lambda: _newest_first(directory), lambda path: check_whole(path, quick=not verify), _warn_of_damage
    )
    return None if found is None else found[0]


def _warn_of_damage(path: str, error: TensorkeepError) -> None:
    warnings.warn(
        f"{path} is not whole, and an older checkpoint is tried: {error}", DamagedCheckpointWarning, stacklevel=4
    )


def _newest_first(folder: str) -> Iterator[str]:
    recover_directories(folder)
    with as_transport_error("could not read the folder of checkpoints", folder):
        steps = {int(match["step"]): match[0] for name in sorted(os.listdir(folder)) if (match := _match_name(name))}
    paths = (os.path.join(folder, steps[step]) for step in sorted(steps, reverse=True))
    return (path for path in paths if os.path.isdir(path))


def check_whole(path: str, *, quick: bool = False) -> None:
    """Check that a checkpoint is complete and, unless `quick`, that every byte is as it was saved."""
    if not os.path.isdir(path):
        found = "a file" if os.path.lexists(path) else "nothing"
        raise SourceMissingError("no such checkpoint", path=path, expected="a directory", found=found)
    if has_manifest(path):
        refuse(verify_folder(path, quick=quick), path)
    else:
        _check_plain(path, quick=quick)


def _check_plain(path: str, *, quick: bool) -> None:
    """Check a checkpoint of transformers.Trainer, which writes its state last."""
    with as_transport_error("the checkpoint is incomplete", path):
        names = sorted(os.listdir(path))
        if _STATE not in names:
            _refuse_incomplete(path, names)
        with open(os.path.join(path, _STATE), "rb") as file:
            text = file.read()
    try:
        json.loads(text)
    except ValueError as cause:
        raise IntegrityError(f"{_STATE} is not JSON", path=path, found=str(cause)) from cause
    weights = list(_weights_in(path, names))
    if not weights:
        raise SourceMissingError("the checkpoint has no weights", path=path, expected=" or ".join(_WEIGHTS))
    pickled = [os.path.join(path, name) for name in names if name.endswith((".pt", ".pth"))]
    for file_path in (*weights, *pickled):
        with open_checkpoint(file_path):
            pass
        if not quick:
            refuse(verify(file_path).findings, path)


def _refuse_incomplete(path: str, names: list[str]) -> NoReturn:
    steps = sorted(int(match["step"]) for name in names if (match := _match_name(name)))
    if steps:
        raise SourceMissingError(
            "the directory is not a checkpoint, but contains some",
            path=path,
            expected=_STATE,
            found=", ".join(f"checkpoint-{step}" for step in steps[-_N_LISTED:]),
            hint="Name one of them, or pass resume_from_checkpoint=True for the newest whole one in output_dir",
        )
    raise SourceMissingError("the checkpoint is incomplete", path=path, expected=_STATE)


def _weights_in(path: str, names: list[str]) -> Iterator[str]:
    """Yield the files by which the weights are opened, including adapters in sub-folders."""
    found = next((name for name in _WEIGHTS if name in names), None)
    if found is not None:
        yield os.path.join(path, found)
    for name in names:
        inner = (os.path.join(path, name, file) for file in _WEIGHTS if file.startswith("adapter"))
        yield from list(filter(os.path.isfile, inner))[:1]


def remove_plain(path: str, saved: set[str]) -> None:
    """Remove files that `transformers.Trainer` saved for the same step: they would look like part of this save."""
    with as_transport_error("could not remove the files of an older save", path):
        for name in os.listdir(path):
            if name not in saved and _is_of_plain_trainer(name):
                os.unlink(os.path.join(path, name))


def remove_old(saved: str, *, limit: int | None, best: str | None) -> None:
    """Remove the oldest whole checkpoints beyond the limit; damaged ones do not count, and stay."""
    folder = os.path.dirname(saved)
    with as_transport_error("could not remove an old checkpoint", folder):
        if limit is not None and limit > 0:
            paths = [path for path in sort_checkpoints(folder, use_mtime=True) if _is_whole(path)]
            kept = {os.path.realpath(path) for path in (saved, best) if path}
            n_surplus = len(paths) - max(limit, len(kept))
            for path in [path for path in paths if os.path.realpath(path) not in kept][: max(n_surplus, 0)]:
                move_aside(path)
        failed = delete_moved_aside(folder)
    for path, error in failed.items():  # such as files that are open, on NFS: no reason to end a run
        warnings.warn(f"{path} could not be deleted yet: {error}", stacklevel=3)


def _is_whole(path: str) -> bool:
    try:
        check_whole(path, quick=True)
    except TensorkeepError:
        return False
    return True
