"""Tensors to bytes or to a file, straight from their own memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from typing import Any, Literal

from tensorkeep.arrays import HostTensor, host_tensor
from tensorkeep.buffers import Buffer
from tensorkeep.collector import PausedCollector
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import HeaderError, IntegrityError, SharedMemoryError, UnsupportedError
from tensorkeep.formats.safetensors import emit_header, lay_out
from tensorkeep.tensors._file import TensorFile
from tensorkeep.tensors._lazy import LazyTensor
from tensorkeep.tensors._sharing import overlapping
from tensorkeep.transport import publish

__all__ = ["save", "serialize_tensors", "write_tensors"]


def save(
    tensors: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    metadata: Mapping[str, str] | None = None,
    ties: Literal["error", "copy"] = "error",
    durable: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Save tensors to a safetensors file, complete or not at all.

    The bytes go from the tensors' own memory to a staged file beside the target, which is renamed over it as the
    last step. Equal input gives equal bytes.

    Args:
        tensors: Name to tensor: NumPy arrays, torch tensors on any device, `LazyTensor` values of another file (or
            of this one), in any mixture and memory layout.
        path: Where the file is to appear. A symbolic link is followed; a replaced file keeps its mode.
        metadata: Free text by key. None keeps that of an open `TensorFile`.
        ties: What to do with tensors whose ranges of memory overlap: `"error"`, or `"copy"`: save each on its own,
            so that they no longer share when loaded.
        durable: Whether to wait until the disk has everything (fsync).
        progress: Called with the bytes written so far and the bytes in all, every few MiB. What it
            raises ends the save, and the target is as it was before.

    Raises:
        SharedMemoryError: If tensors share memory and `ties` is `"error"`.
        DtypeError: If the format has no such dtype.
        TypeError: If `tensors` is no mapping, or a name or metadata is not text.
        UnsupportedError: If a value is no tensor, or is sparse or without data.
        HeaderError: If a name or text has no UTF-8 form, or is the one that the format keeps for itself.
        LimitError: If there are more names than a header can hold.
        TransportError: If the file cannot be written; the target is then as it was before.
    """
    if ties not in {"error", "copy"}:
        raise UnsupportedError(f"ties {ties!r} is invalid", expected='"error" or "copy"')
    if not isinstance(tensors, Mapping):
        raise TypeError(f"tensors are a mapping of name to tensor, not {type(tensors).__name__}")
    if metadata is None and isinstance(tensors, TensorFile) and tensors.has_metadata:
        metadata = tensors.metadata
    with PausedCollector():
        hosts = {name: _describe(name, tensor) for name, tensor in tensors.items()}
        if ties == "error":
            _refuse_shared(hosts)
    write_tensors(hosts, path, metadata=metadata, durable=durable, progress=progress)


def write_tensors(
    hosts: Mapping[str, HostTensor],
    path: str | os.PathLike[str],
    *,
    metadata: Mapping[str, str] | None = None,
    durable: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write described tensors to a file, complete or not at all.

    Args:
        hosts: Name to description.
        path: Where the file is to appear.
        metadata: Free text by key.
        durable: Whether to wait until the disk has everything (fsync).
        progress: Called with the bytes written so far and the bytes in all.

    Raises:
        HeaderError: If a tensor does not fill whole bytes, or a name or text is impossible.
        LimitError: If there are more names than a header can hold.
        IntegrityError: If a tensor gives more or fewer bytes than its shape says.
        TransportError: If the file cannot be written; the target is then as it was before.
    """
    with PausedCollector():
        head, entries = _head(hosts, metadata)
    nbytes = len(head) + sum(host.nbytes for host in hosts.values())
    report = None if progress is None else partial(_report, progress, nbytes)
    with publish(path, durable=durable, on_written=report) as sink:
        sink.preallocate(nbytes)
        sink.write([head])
        sink.write(_data(hosts, entries))


def _report(progress: Callable[[int, int], None], nbytes: int, written: int) -> None:
    progress(written, nbytes)


def serialize_tensors(hosts: Mapping[str, HostTensor], *, metadata: Mapping[str, str] | None = None) -> bytes:
    """Encode described tensors as the bytes of a file, in one copy.

    Args:
        hosts: Name to description.
        metadata: Free text by key.

    Returns:
        The bytes.

    Raises:
        HeaderError: If a tensor does not fill whole bytes, or a name or text is impossible.
        LimitError: If there are more names than a header can hold.
        IntegrityError: If a tensor gives more or fewer bytes than its shape says.
    """
    head, entries = _head(hosts, metadata)
    return b"".join([head, *_data(hosts, entries)])


def _describe(name: Any, tensor: Any) -> HostTensor:
    if not isinstance(name, str):
        raise TypeError(f"names of tensors are text, not {type(name).__name__}: {name!r:.100}")
    return tensor.host_tensor() if isinstance(tensor, LazyTensor) else host_tensor(tensor, name)


def _refuse_shared(hosts: Mapping[str, HostTensor]) -> None:
    groups = overlapping({name: host.extent() for name, host in hosts.items()})
    if groups:
        raise SharedMemoryError(
            "tensors share memory",
            tensor=groups[0][0],
            found="; ".join(", ".join(f"`{name}`" for name in group) for group in groups[:10]),
            hint='Save one of each group, or pass ties="copy" to save each on its own',
        )


def _head(
    hosts: Mapping[str, HostTensor], metadata: Mapping[str, str] | None
) -> tuple[bytes, dict[str, TensorEntry]]:
    for name, host in hosts.items():
        if host.dtype.is_packed and prod(host.shape) * host.dtype.bits % 8:
            raise HeaderError(
                f"the elements of tensor `{name}` do not fill whole bytes",
                tensor=name,
                found=f"{prod(host.shape)} elements of {host.dtype.bits} bits",
            )
    entries = lay_out({name: (host.dtype, host.shape, host.nbytes) for name, host in hosts.items()})
    return emit_header(entries, metadata), entries


def _data(hosts: Mapping[str, HostTensor], entries: Mapping[str, TensorEntry]) -> Iterator[Buffer]:
    for name in entries:
        host = hosts[name]
        given = 0
        for buffer in host.buffers():
            given += memoryview(buffer).nbytes
            yield buffer
        if given != host.nbytes:
            raise IntegrityError(
                f"tensor `{name}` gave another number of bytes than its shape says",
                tensor=name,
                expected=f"{host.nbytes:,} bytes",
                found=f"{given:,}",
                hint="Do not resize tensors while they are saved",
            )
