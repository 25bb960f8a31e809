"""Tensors to bytes or to a file, straight from their own memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from errno import EISDIR
from functools import partial
from typing import Any

from tensorkeep.arrays import TensorToWrite
from tensorkeep.errors import TransportError, UnsupportedError
from tensorkeep.tensors.writing._file_body import Sealing, file_body, plain_buffers, plain_head, write_file
from tensorkeep.tensors.writing._prepare import Prepared, prepare
from tensorkeep.tensors.writing._sharing import Ties
from tensorkeep.transport import (
    RemotePath,
    check_writable,
    exists,
    finish_pending_commit,
    is_directory,
    is_remote,
    join,
    publish,
    split,
    without_secrets,
)

_NUMBER = re.compile(r"-[0-9]{5}-of-[0-9]{5}$")


def save(
    state: Any,
    path: str | os.PathLike[str],
    *,
    metadata: Mapping[str, str] | None = None,
    ties: Ties = "share",
    digests: bool = True,
    durable: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Save tensors, or a whole training state, to a safetensors file, complete or not at all.

    Any nested data can be saved: dicts, lists and tuples of tensors, numbers, texts, dates and much else that is no
    code; `load` gives it back exactly. Tensors bear the keys that lead to them as names, joined by dots, so that any
    reader of the format finds them. Memory that several share is stored once.

    The bytes go from the tensors' own memory to a staged file beside the target, which is renamed over it as the
    last step. Equal input gives equal bytes. Tensors of another file are copied by the kernel, with their digests.

    Args:
        state: A dict of name to tensor, or any nested data. Tensors are NumPy arrays, torch tensors on any device,
            and `LazyTensor` values of another file (or of this one), in any mixture and memory layout. An open file
            or a view of one is saved with all that it says.
        path: Where the file is to appear. A symbolic link is followed; a replaced file keeps its mode.
        metadata: Free text by key. None keeps that of an open `TensorFile`.
        ties: What to do with tensors whose ranges of memory overlap: `"share"`: store the memory once, so that they
            share it when loaded; `"copy"`: save each on its own; or `"error"`.
        digests: Whether the header carries a digest of each tensor and of itself, so that `verify` finds any byte
            that changed. They are made while the bytes are written. Without, and if the state is nothing but tensors
            by name, the file is byte for byte the one that safetensors writes, which knows neither their order nor
            their library.
        durable: Whether to wait until the disk has everything (fsync).
        progress: Called with the bytes written so far and the bytes in all, every few MiB. What it
            raises ends the save, and the target is as it was before.

    Raises:
        StateError: If a value is no data: a function, a model, an object of some class. The message has its path.
        SharedMemoryError: If tensors share memory and `ties` is `"error"`.
        DtypeError: If the format has no such dtype.
        TypeError: If the path is none, or metadata is not text.
        UnsupportedError: If a tensor has no data, or an argument is invalid; or an index beside the file says that a
            checkpoint of several files stands there; or a URL is that of a directory.
        HeaderError: If a name or text has no UTF-8 form, or is the one that the format keeps for itself.
        LimitError: If there are more names than a header can hold, or data is nested too deep.
        TransportError: If the file cannot be written; the target is then as it was before.
    """
    _refuse_directory(check_target(path))
    write_prepared(
        prepare(state, ties=ties, is_flat_bare=not digests),
        path,
        metadata=metadata,
        digests=digests,
        durable=durable,
        progress=progress,
    )


def check_target(path: object) -> str:
    """Return the path of what is to be saved as text."""
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(f"a path is needed, not {type(path).__name__}; the state comes first: save(state, path)")
    check_writable(os.fsdecode(path))
    return os.fsdecode(path)


def _refuse_directory(path: str) -> None:
    if is_remote(path) and is_directory(path):
        raise UnsupportedError(
            "of a URL, a name without a suffix is that of a directory",
            path=without_secrets(path),
            expected="the name of a file, such as model.safetensors",
            hint="tensorkeep.save_checkpoint(state, url) saves into a directory",
        )
    if os.path.isdir(path):
        raise TransportError(
            "only regular files are replaced",
            path=path,
            found="directory",
            hint="tensorkeep.save_checkpoint(state, directory) saves into it",
        ).numbered(EISDIR)


def write_prepared(
    prepared: Prepared,
    path: str | os.PathLike[str],
    *,
    metadata: Mapping[str, str] | None = None,
    digests: bool = True,
    durable: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write what was prepared to a file; see `save`."""
    _refuse_beside_index(os.fsdecode(path))
    write_tensors(
        prepared.to_write,
        path,
        metadata=prepared.with_ties(prepared.metadata if metadata is None else metadata),
        state=prepared.state,
        sealing=Sealing() if digests else None,
        durable=durable,
        progress=progress,
    )


def _refuse_beside_index(path: str) -> None:
    """Refuse to make a file of which nobody could say whether it or the index beside it is meant."""
    directory, name = split(path)
    stem = _NUMBER.sub("", name.removesuffix(".safetensors"))
    base, _, variant = stem.rpartition(".")
    names = (f"{stem}.safetensors.index.json", f"{base}.safetensors.index.{variant}.json")
    index = next((each for each in names if exists(join(directory, each))), None)
    if index is not None:
        raise UnsupportedError(
            "a checkpoint of several files stands there",
            path=path,
            found=index,
            hint="Replace it as a whole with tensorkeep.save_checkpoint, or save under another name",
        )
    if not is_remote(path):
        finish_pending_commit(
            directory or os.curdir, stem
        )  # lest what an earlier save has left to do is done over this one


def write_tensors(
    to_write: Mapping[str, TensorToWrite],
    path: str | os.PathLike[str],
    *,
    metadata: Mapping[str, str] | None = None,
    state: str | None = None,
    sealing: Sealing | None = None,
    durable: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write described tensors to a file, complete or not at all."""
    data_nbytes = sum(host.nbytes for host in to_write.values())
    report = None if progress is None else partial(_report, progress, data_nbytes)
    if is_remote(os.fsdecode(path)):
        body = file_body(to_write, metadata, state=state, sealing=sealing)
        RemotePath.of(os.fsdecode(path)).put(body, on_written=report)
        return
    with publish(path, durable=durable, on_written=report) as sink:
        write_file(sink, to_write, metadata, state=state, sealing=sealing)


def _report(progress: Callable[[int, int], None], nbytes: int, written: int) -> None:
    progress(min(written, nbytes), nbytes)


def serialize_tensors(to_write: Mapping[str, TensorToWrite], *, metadata: Mapping[str, str] | None = None) -> bytes:
    """Encode described tensors as the bytes of a file, in one copy."""
    head, entries = plain_head(to_write, metadata)
    return b"".join([head, *plain_buffers(to_write, entries)])
