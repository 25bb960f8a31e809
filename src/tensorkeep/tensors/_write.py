"""Tensors to bytes or to a file, straight from their own memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from tensorkeep.arrays import HostTensor, host_tensor
from tensorkeep.collector import PausedCollector
from tensorkeep.errors import SharedMemoryError, UnsupportedError
from tensorkeep.tensors._body import Sealing, plain_buffers, plain_head, write_file
from tensorkeep.tensors._lazy import LazyTensor
from tensorkeep.tensors._mapping import LazyTensors
from tensorkeep.tensors._sharing import overlapping
from tensorkeep.transport import finish_pending, publish

__all__ = ["Ties", "describe", "save", "serialize_tensors", "write_tensors"]

_NUMBER = re.compile(r"-[0-9]{5}-of-[0-9]{5}$")

Ties = Literal["error", "copy"]
"""What to do with tensors that share memory."""


def save(
    tensors: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    metadata: Mapping[str, str] | None = None,
    ties: Ties = "error",
    digests: bool = True,
    durable: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Save tensors to a safetensors file, complete or not at all.

    The bytes go from the tensors' own memory to a staged file beside the target, which is renamed over it as the
    last step. Equal input gives equal bytes. Tensors of another file are copied by the kernel, with their digests.

    Args:
        tensors: Name to tensor: NumPy arrays, torch tensors on any device, `LazyTensor` values of another file (or
            of this one), in any mixture and memory layout.
        path: Where the file is to appear. A symbolic link is followed; a replaced file keeps its mode.
        metadata: Free text by key. None keeps that of an open `TensorFile`.
        ties: What to do with tensors whose ranges of memory overlap: `"error"`, or `"copy"`: save each on its own,
            so that they no longer share when loaded.
        digests: Whether the header carries a digest of each tensor and of itself, so that `verify` finds any byte
            that changed. They are made while the bytes are written. Without, the file is byte for byte the one that
            safetensors writes.
        durable: Whether to wait until the disk has everything (fsync).
        progress: Called with the bytes written so far and the bytes in all, every few MiB. What it
            raises ends the save, and the target is as it was before.

    Raises:
        SharedMemoryError: If tensors share memory and `ties` is `"error"`.
        DtypeError: If the format has no such dtype.
        TypeError: If `tensors` is no mapping, or a name or metadata is not text.
        UnsupportedError: If a value is no tensor, or is sparse or without data; or an index beside the file says that
            a checkpoint of several files stands there.
        HeaderError: If a name or text has no UTF-8 form, or is the one that the format keeps for itself.
        LimitError: If there are more names than a header can hold.
        TransportError: If the file cannot be written; the target is then as it was before.
    """
    _refuse_beside_index(os.fsdecode(path))
    hosts = describe(tensors, ties=ties)
    if metadata is None and isinstance(tensors, LazyTensors) and tensors.has_metadata:
        metadata = tensors.metadata
    write_tensors(
        hosts, path, metadata=metadata, sealing=Sealing() if digests else None, durable=durable, progress=progress
    )


def _refuse_beside_index(path: str) -> None:
    """Refuse to make a file of which nobody could say whether it or the index beside it is meant."""
    directory, name = os.path.split(path)
    stem = _NUMBER.sub("", name.removesuffix(".safetensors"))
    base, _, variant = stem.rpartition(".")
    names = (f"{stem}.safetensors.index.json", f"{base}.safetensors.index.{variant}.json")
    index = next((each for each in names if os.path.exists(os.path.join(directory, each))), None)
    if index is not None:
        raise UnsupportedError(
            "a checkpoint of several files stands there",
            path=path,
            found=index,
            hint="Replace it as a whole with tensorkeep.save_checkpoint, or save under another name",
        )
    finish_pending(directory or os.curdir, stem)  # lest what an earlier save has left to do is done over this one


def describe(tensors: Mapping[str, Any], *, ties: Ties = "error") -> dict[str, HostTensor]:
    """Describe tensors for writing.

    Args:
        tensors: Name to tensor, of any array library, or lazy.
        ties: What to do with tensors whose ranges of memory overlap.

    Returns:
        Name to description, in the same order.

    Raises:
        SharedMemoryError: If tensors share memory and `ties` is `"error"`.
        DtypeError: If the format has no such dtype.
        TypeError: If `tensors` is no mapping, or a name is not text.
        UnsupportedError: If a value is no tensor, or is sparse or without data, or `ties` is neither of the above.
    """
    if ties not in {"error", "copy"}:
        raise UnsupportedError(f"ties {ties!r} is invalid", expected='"error" or "copy"')
    if not isinstance(tensors, Mapping):
        raise TypeError(f"tensors are a mapping of name to tensor, not {type(tensors).__name__}")
    with PausedCollector():
        hosts = {name: _describe(name, tensor) for name, tensor in tensors.items()}
        if ties == "error":
            _refuse_shared(hosts)
    return hosts


def write_tensors(
    hosts: Mapping[str, HostTensor],
    path: str | os.PathLike[str],
    *,
    metadata: Mapping[str, str] | None = None,
    sealing: Sealing | None = None,
    durable: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write described tensors to a file, complete or not at all.

    Args:
        hosts: Name to description.
        path: Where the file is to appear.
        metadata: Free text by key.
        sealing: How the file gets its digests; None for a file without.
        durable: Whether to wait until the disk has everything (fsync).
        progress: Called with the bytes written so far and the bytes in all.

    Raises:
        HeaderError: If a tensor does not fill whole bytes, or a name or text is impossible.
        LimitError: If there are more names than a header can hold.
        IntegrityError: If a tensor gives more or fewer bytes than its shape says.
        TransportError: If the file cannot be written; the target is then as it was before.
    """
    data_nbytes = sum(host.nbytes for host in hosts.values())
    report = None if progress is None else partial(_report, progress, data_nbytes)
    with publish(path, durable=durable, on_written=report) as sink:
        write_file(sink, hosts, metadata, sealing=sealing)


def _report(progress: Callable[[int, int], None], nbytes: int, written: int) -> None:
    progress(min(written, nbytes), nbytes)


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
    head, entries = plain_head(hosts, metadata)
    return b"".join([head, *plain_buffers(hosts, entries)])


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
