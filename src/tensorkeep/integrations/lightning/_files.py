"""Checkpoint files of Lightning: written, read and removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any, Final

import torch

from tensorkeep.checkpoint import open_checkpoint
from tensorkeep.errors import UnsupportedError, as_transport_error
from tensorkeep.integrations.lightning._pickles import read_pickled
from tensorkeep.integrations.lightning._values import from_data
from tensorkeep.kinds import LoadOptions
from tensorkeep.kinds.pickles import pickle_file_of
from tensorkeep.tensors import Prepared, Sealing, write_file, write_prepared
from tensorkeep.transport import RemotePath, check_writable, is_in_store, is_remote, local_path, transaction

_SLURM: Final = "hpc_ckpt_"
"""Part of the names of checkpoints that a Trainer saves when SLURM stops its job; a number follows."""


def located(path: str | os.PathLike[str]) -> str:
    """Return a local path, with `~` and `file://` resolved, or a URL."""
    text = os.fspath(path)
    return RemotePath.of(text) if is_in_store(text) else local_path(text)


def create_parent(path: str) -> None:
    """Create the directory of a file; a bucket has none, and may refuse to be written to."""
    if is_remote(path):
        check_writable(path)
        return
    directory = os.path.dirname(path)
    if directory:
        with as_transport_error("could not create the directory of the checkpoint", directory):
            os.makedirs(directory, exist_ok=True)


def write_checkpoint(prepared: Prepared, path: str, *, durable: bool) -> None:
    """Write a checkpoint to a file, completely or not at all.

    A link is replaced, and its target left alone, since ModelCheckpoint creates links to other checkpoints. Temporary
    files for the checkpoint of a SLURM job do not contain its name, or Lightning would take leftovers for newer
    checkpoints.
    """
    directory, name = os.path.split(path)
    if is_remote(path) or (not os.path.islink(path) and _SLURM not in name):
        write_prepared(prepared, path, durable=durable)
        return
    with transaction(directory or os.curdir, name.replace(_SLURM, "slurm-"), durable=durable) as change:
        with change.file(name) as sink:
            metadata = prepared.with_ties(prepared.metadata)
            write_file(sink, prepared.to_write, metadata, state=prepared.state, sealing=Sealing())
        change.commit()


def read_checkpoint(
    path: str, *, device: Any, classes: Mapping[str, type], verifies: bool, drop_unknown: bool
) -> Any:
    """Load a checkpoint of tensorkeep, or a pickle of Lightning, which is never run."""
    with open_checkpoint(path, framework="torch", device=device, verify=verifies) as opened:
        pickled = pickle_file_of(opened)
        if pickled is not None:
            loaded = read_pickled(pickled, classes, drop_unknown=drop_unknown)
        elif opened.loads_parts:
            framework = None if opened.has_tree else "torch"
            loaded = opened.load_state(
                LoadOptions(classes=classes, framework=framework, device=device, uses_device=False)
            )
        else:
            raise UnsupportedError("a checkpoint of Lightning is one file", path=path, found=opened.format_name)
    return from_data(loaded, classes)


def remove_checkpoint(path: str) -> None:
    """Remove a checkpoint, if it exists."""
    if is_remote(path):
        RemotePath.of(path).remove()
        return
    with as_transport_error("could not remove the checkpoint", path):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)


def device_of(map_location: Any) -> Any:
    """Return the device that `map_location` means."""
    if map_location is None:
        return "cpu"
    if isinstance(map_location, dict):
        return map_location.get("cpu", "cpu")
    if isinstance(map_location, str | int | torch.device):
        return map_location
    storage = map_location(torch.empty(0).untyped_storage(), "cpu")
    return "cpu" if storage is None else storage.device
