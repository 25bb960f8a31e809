"""`save`: tensors, or a whole state, to one file; and tensors as bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from errno import EISDIR
from functools import partial
from typing import Any

from tensorkeep.arrays import TensorToWrite
from tensorkeep.encryption import Encryption, KeyLike
from tensorkeep.errors import TransportError, UnsupportedError
from tensorkeep.formats.safetensors import ALIGNMENT_NBYTES, PLAIN, Arrangement
from tensorkeep.tensors.writing._file_body import file_body, plain_buffers, plain_head, write_file
from tensorkeep.tensors.writing._prepare import Prepared, prepare
from tensorkeep.tensors.writing._sealing import Sealing
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
    align: int = ALIGNMENT_NBYTES,
    order: Sequence[str] | None = None,
    encrypt: KeyLike | Encryption | None = None,
) -> None:
    """Save tensors, or a whole training state, to one safetensors file. It appears complete or not at all.

        tensorkeep.save({"weight": weight, "bias": bias}, "model.safetensors")
        tensorkeep.save({"model": model.state_dict(), "epoch": 7}, "run.safetensors")

    Any nested data can be saved: dicts, lists and tuples of tensors, numbers, text, dates and more, as long as it is
    not code. `load` returns it exactly. A tensor's name is the keys that lead to it, joined by dots, so any reader of
    the format finds it. Memory that several tensors share is stored once.

    The bytes go from the tensors' own memory to a staged file beside the target, which is renamed over the target
    as the last step. Equal input gives equal bytes. Tensors of another file are copied by the kernel, with their
    digests.

    Args:
        state: A dict of name to tensor, or any nested data. Tensors can be NumPy arrays, torch tensors on any device,
            and lazy tensors of other files or of this one, in any mixture and memory layout. An open file, or a view
            of one, is saved with its metadata and its state.
        path: The file to write, or a URL. A symbolic link is followed; a file that is replaced keeps its mode.
        metadata: Free text by key. None keeps the metadata of an open file.
        ties: What to do with tensors that share memory: `"share"` stores the memory once, and they share it again
            when loaded; `"copy"` stores each separately; `"error"` refuses.
        digests: Whether to store a BLAKE3 digest of each tensor and of the header, so that `verify` finds any changed
            byte. They are computed while the bytes are written. If off, and the state is nothing but tensors by name,
            the file is byte for byte what safetensors writes, and keeps neither the order of the tensors nor their
            array library.
        durable: Whether to wait until the disk has everything (fsync), so that not even a power cut loses it.
        progress: Called every few MiB with the bytes written and the total. If it raises, the save ends and the
            target stays as it was.
        align: Bytes: a power of two up to 4,096. Beyond 8, tensors whose size is a multiple of it come first, and
            begin at multiples of it in the file, so that libraries that need this share a mapped file's memory: 64
            for jax and TensorFlow.
        order: What is read together lies together: names or shell patterns, such as `["embed.*", "layers.0.*"]`. The
            data of tensors that match the first come first in the file, and so on; the others follow. Tensors whose
            size is no multiple of 8 bytes come last, so that all others stay aligned. None for the usual order, wide
            dtypes first.
        encrypt: The key to encrypt with, the path of a file with it, or an `Encryption`, which may leave names
            visible. Each save draws a new salt, so equal input gives other bytes. None for a plain file.

    Raises:
        StateError: If a value cannot be saved: a function, a model, an object of some class. The message has its path
            (also a TypeError).
        SharedMemoryError: If tensors share memory and `ties` is `"error"`.
        DtypeError: If the format has no such dtype (also a TypeError).
        TypeError: If `path` is not a path, metadata is not text, or `order` is not a list of texts.
        UnsupportedError: If a tensor has no data or an argument is invalid; if the path is that of a checkpoint of
            several files; if a URL names a directory.
        HeaderError: If a name or text has no UTF-8 form, or a name is the one that the format reserves.
        LimitError: If names, or data beside the tensors, are too long for a header, or data is nested too deep.
        IntegrityError: If a tensor changes its size while it is saved.
        TransportError: If the file cannot be written; the target is then as it was.
        MissingDependencyError: If `cryptography` is not installed, with `encrypt`.

    Examples:
        >>> state = {"model": {"weight": numpy.eye(2)}, "step": 500}
        >>> tensorkeep.save(state, "state.safetensors", metadata={"by": "me"})
        >>> tensorkeep.load("state.safetensors")["step"]
        500
    """
    _refuse_directory(check_target(path))
    write_prepared(
        prepare(state, ties=ties, is_flat_bare=not digests),
        path,
        metadata=metadata,
        digests=digests,
        durable=durable,
        progress=progress,
        arrangement=Arrangement.of(align, order),
        encryption=Encryption.of(encrypt),
    )


def check_target(path: object) -> str:
    """Return the path to save to as text, or refuse what is not a path, and URLs that cannot be written."""
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(f"a path is needed, not {type(path).__name__}; the state comes first: save(state, path)")
    check_writable(os.fsdecode(path))
    return os.fsdecode(path)


def _refuse_directory(path: str) -> None:
    if is_remote(path) and is_directory(path):
        raise UnsupportedError(
            "a URL without a file extension names a directory",
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
    arrangement: Arrangement = PLAIN,
    encryption: Encryption | None = None,
) -> None:
    """Write a prepared state to a file."""
    if encryption is not None and not digests:
        raise UnsupportedError("an encrypted file always has digests", expected="digests=True")
    _refuse_beside_index(os.fsdecode(path))
    write_tensors(
        prepared.to_write,
        path,
        metadata=prepared.with_ties(prepared.metadata if metadata is None else metadata),
        state=prepared.state,
        sealing=Sealing(encryption=encryption) if digests else None,
        durable=durable,
        progress=progress,
        arrangement=arrangement,
    )


def _refuse_beside_index(path: str) -> None:
    """Refuse a file beside an index of the same name: a reader could not tell which of them is meant."""
    directory, name = split(path)
    stem = _NUMBER.sub("", name.removesuffix(".safetensors"))
    base, _, variant = stem.rpartition(".")
    names = (f"{stem}.safetensors.index.json", f"{base}.safetensors.index.{variant}.json")
    index = next((each for each in names if exists(join(directory, each))), None)
    if index is not None:
        raise UnsupportedError(
            "there is a checkpoint of several files",
            path=path,
            found=index,
            hint="Replace it as a whole with tensorkeep.save_checkpoint, or save under another name",
        )
    if not is_remote(path):
        # Finish a killed save now: later, its files would replace this one.
        finish_pending_commit(directory or os.curdir, stem)


def write_tensors(
    to_write: Mapping[str, TensorToWrite],
    path: str | os.PathLike[str],
    *,
    metadata: Mapping[str, str] | None = None,
    state: str | None = None,
    sealing: Sealing | None = None,
    durable: bool = True,
    progress: Callable[[int, int], None] | None = None,
    arrangement: Arrangement = PLAIN,
) -> None:
    """Write described tensors to a file, complete or not at all."""
    data_nbytes = sum(tensor.nbytes for tensor in to_write.values())
    report = None if progress is None else partial(_report, progress, data_nbytes)
    if is_remote(os.fsdecode(path)):
        body = file_body(to_write, metadata, state=state, sealing=sealing, arrangement=arrangement)
        RemotePath.of(os.fsdecode(path)).put(body, on_written=report)
        return
    with publish(path, durable=durable, on_written=report) as sink:
        write_file(sink, to_write, metadata, state=state, sealing=sealing, arrangement=arrangement)


def _report(progress: Callable[[int, int], None], nbytes: int, written: int) -> None:
    progress(min(written, nbytes), nbytes)


def serialize_tensors(to_write: Mapping[str, TensorToWrite], *, metadata: Mapping[str, str] | None = None) -> bytes:
    """Encode described tensors as the bytes of a file, in one copy."""
    head, entries = plain_head(to_write, metadata)
    return b"".join([head, *plain_buffers(to_write, entries)])
