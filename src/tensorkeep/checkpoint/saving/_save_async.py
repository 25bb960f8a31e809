"""Background saves of a state as it was when they began."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypedDict, Unpack

from tensorkeep.checkpoint.saving._options import SaveOptions
from tensorkeep.checkpoint.saving._save import save_checkpoint, write_checkpoint
from tensorkeep.checkpoint.saving._save_queue import SaveHandle, start_save, wait_for_turn
from tensorkeep.checkpoint.saving._snapshot import Snapshot, SnapshotPlace, take_snapshot
from tensorkeep.collector import PausedCollector
from tensorkeep.encryption import Encryption, KeyLike
from tensorkeep.errors import UnsupportedError
from tensorkeep.formats.safetensors import Arrangement
from tensorkeep.kinds.safetensors import Checkpoint, TensorFile
from tensorkeep.layout import Index, parse_size
from tensorkeep.tensors import Prepared, Ties, check_target, prepare, save, write_prepared
from tensorkeep.transport import is_remote, split

_Prepare: TypeAlias = Callable[[], Prepared]
_Write: TypeAlias = Callable[[Prepared], None]


class SaveArguments(TypedDict, total=False):
    """The keyword arguments of `save` and `save_checkpoint`."""

    metadata: Mapping[str, str] | None
    ties: Ties
    digests: bool
    durable: bool
    progress: Callable[[int, int], None] | None
    max_shard_size: int | str
    balance: bool
    split_large: bool
    layout: str | os.PathLike[str] | Index | None
    base_name: str
    variant: str | None
    sha256: bool
    block_digests: bool
    index_metadata: Mapping[str, Any] | None
    before_commit: Callable[[Mapping[str, str]], None] | None
    reuse: Checkpoint | TensorFile | None
    align: int
    order: Sequence[str] | None
    encrypt: KeyLike | Encryption | None


def save_async(
    state: Any,
    path: str | os.PathLike[str],
    *,
    max_waiting: int = 0,
    snapshot: SnapshotPlace = "host",
    **options: Unpack[SaveArguments],
) -> SaveHandle:
    """Save a state while training continues.

    The state is first copied in memory; after the call returns, all of it may be changed. A background thread then
    writes the copy, and the file appears, complete or not at all, byte for byte as `save` would have written it.
    Tensors of open files are not copied: leave these files open and unchanged until the save is done.

    Each directory has one save at a time. The next one first waits until it is finished. If that save failed and
    nobody has asked for its result, its error is raised then, once, and the new save does not begin. The process
    waits at its end for unfinished saves, and reports errors that nobody has seen to `threading.excepthook`. Killed
    at any instant, the target holds the old or the new checkpoint, whole.

    The memory of the copy, as large as the tensors in the file, is kept for the next save, which then copies in a
    fraction of the time; `release_snapshots` frees it.

    Args:
        state: A dict of name to tensor, or any nested data; see `save`.
        path: A file if it ends in `.safetensors` and is not a directory; a directory otherwise.
        max_waiting: How many saves may wait, each with its own copy, while another is written.
        snapshot: Where tensors on CUDA and XPU devices are copied before the call returns. `"host"`: to memory of the
            CPU. `"device"`: on the device, which takes less time, and as much of its memory as they have. Background
            threads then move the copies to the CPU, within the `staging` block of this call, and each is freed once
            it has arrived. Tensors for which the device, or the `device_budget` of that block, has no room are
            copied to the CPU at once.
        **options: Keyword arguments of `save` for a file, or of `save_checkpoint` for a directory. Callbacks are
            called by the background thread.

    Returns:
        A handle that says when the save is done and whether it failed.

    Raises:
        StateError: If a value is not data: a function, a model, an object of some class. The message has its path.
        SharedMemoryError: If tensors share memory and `ties` is `"error"`.
        DtypeError: If the format has no such dtype.
        TypeError: If `path` is not path-like, or the function for a file or directory has no such argument.
        UnsupportedError: If an argument is invalid, or a tensor has no data.
        LimitError: If data is nested too deep.
        BaseException: The error of an earlier save to that directory. An error of this save's background part is
            raised by the handle.

    Examples:
        >>> saving = tensorkeep.save_async({"weight": numpy.eye(2)}, "w.safetensors")
        >>> saving.result()  # training continues until here
    """
    target = check_target(path)
    if is_remote(target):
        directory, name = split(target)
        is_file, place = name.endswith(".safetensors"), directory
    else:
        target = os.path.join(os.getcwd(), target)
        is_file = target.endswith(".safetensors") and not os.path.isdir(target)
        place = os.path.dirname(os.path.realpath(target))
    make, write = (_to_file if is_file else _to_directory)(state, target, dict(options))
    return save_in_background(make, write, path=target, place=place, max_waiting=max_waiting, snapshot=snapshot)


def save_in_background(
    make: _Prepare,
    write: _Write,
    *,
    path: str,
    place: str,
    max_waiting: int = 0,
    snapshot: SnapshotPlace = "host",
    raises_earlier: bool = True,
) -> SaveHandle:
    """Copy a state in memory, and write the copy in the background; raise the error of an earlier save instead."""
    if max_waiting < 0:
        raise UnsupportedError("max_waiting is invalid", expected="0 or more", found=str(max_waiting))
    if snapshot not in {"host", "device"}:
        raise UnsupportedError("snapshot is invalid", expected='"host" or "device"', found=repr(snapshot))
    with wait_for_turn(place, path, max_waiting=max_waiting, raises_earlier=raises_earlier) as handle:
        with PausedCollector():  # not while it waits for its turn
            taken = take_snapshot(make(), snapshot)
        start_save(place, handle, partial(_write, taken, write))
    return handle


def _write(snapshot: Snapshot, write: _Write) -> None:
    try:
        snapshot.fetch()
        write(snapshot.prepared)
    finally:
        snapshot.release()


def _to_file(state: Any, path: str, given: dict[str, Any]) -> tuple[_Prepare, _Write]:
    arguments = _complete(given, save)
    make = partial(prepare, state, ties=arguments.pop("ties"), is_flat_bare=not arguments["digests"])
    arrangement = Arrangement.of(arguments.pop("align"), arguments.pop("order"))
    encryption = Encryption.of(arguments.pop("encrypt"))
    return make, partial(write_prepared, path=path, arrangement=arrangement, encryption=encryption, **arguments)


def _to_directory(state: Any, path: str, given: dict[str, Any]) -> tuple[_Prepare, _Write]:
    arguments = _complete(given, save_checkpoint)
    max_shard_nbytes = parse_size(arguments.pop("max_shard_size"))
    make = partial(prepare, state, ties=arguments.pop("ties"))
    encryption = Encryption.of(arguments.pop("encrypt"))
    options = SaveOptions(max_shard_nbytes=max_shard_nbytes, encryption=encryption, **arguments)
    return make, partial(write_checkpoint, directory=path, options=options)


def _complete(given: dict[str, Any], function: Callable[..., None]) -> dict[str, Any]:
    """Return all arguments of a function, with its defaults; the caller can no longer change them."""
    defaults: dict[str, Any] = function.__kwdefaults__ or {}
    unknown = given.keys() - defaults.keys()
    if unknown:
        target = "directory" if function is save_checkpoint else "file"
        raise TypeError(f"{function.__name__}, which saves to a {target}, takes no {', '.join(sorted(unknown))}")
    texts = {name: copy.deepcopy(given[name]) for name in ("metadata", "index_metadata") if name in given}
    return defaults | given | texts
