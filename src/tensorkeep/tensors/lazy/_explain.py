"""What an array library does with the memory of each tensor: shares, copies or converts it, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from tensorkeep.arrays import DenseArrays, Library, adapter_for, library_for
from tensorkeep.dtypes import DType
from tensorkeep.limits import MAPPED_FROM_NBYTES
from tensorkeep.tensors.lazy._lazy import LazyTensor
from tensorkeep.tensors.readers import TensorReader
from tensorkeep.transport import ByteSource, LocalFile

Outcome = Literal["shared", "copied", "converted", "refused"]


class MemoryUse(msgspec.Struct, frozen=True):
    """What happens to the memory of a tensor when it is loaded.

    Attributes:
        outcome: `"shared"`: the tensor is over the mapped file, and nothing is read before it is used. `"copied"`:
            its bytes are read or copied. `"converted"`: its elements change their form on the way. `"refused"`: the
            library cannot hold it.
        reason: Why.
        nbytes: Bytes of its elements in the file.
    """

    outcome: Outcome
    reason: str
    nbytes: int


def explain(tensors: Mapping[str, LazyTensor], framework: str, device: Any) -> dict[str, MemoryUse]:
    """Say for each tensor what loading it into a library does; only headers are looked at."""
    library, adapter = library_for(framework), adapter_for(framework, device)
    mapped = _mapped(tensors.values())
    found = {}
    for name, lazy in tensors.items():
        outcome, reason = _outcome(lazy, library, adapter, mapped)
        found[name] = MemoryUse(outcome, reason, lazy.nbytes)
    return found


def _outcome(
    lazy: LazyTensor, library: Library, adapter: DenseArrays, mapped: set[ByteSource]
) -> tuple[Outcome, str]:
    cast_to = lazy.reader.cast_to
    dtype = cast_to or lazy.entry.known_dtype
    if dtype is None or not adapter.has_dtype(dtype):
        return "refused", f"{library.name} has no dtype for {lazy.dtype} here"
    if cast_to is not None:
        return "converted", f"it is cast from {lazy.entry.dtype}"
    kept = adapter.memory_of(dtype)
    if kept == "converted":
        return kept, f"{library.name} holds {dtype.name} in another form"
    if kept == "shared" and adapter.is_on_host:
        obstacle = _obstacle(lazy, dtype, library, mapped)
        return ("copied", obstacle) if obstacle else ("shared", "the memory of the mapped file is used as it is")
    reason = (
        f"{library.name} uses only its own memory for {dtype.name}" if kept == "copied" else "it goes to a device"
    )
    return "copied", reason


def _obstacle(lazy: LazyTensor, dtype: DType, library: Library, mapped: set[ByteSource]) -> str | None:
    """Say why the bytes of a tensor cannot be used where they are; None if they can."""
    reader, span = lazy.reader, lazy.span
    if not isinstance(reader, TensorReader) or span is None:
        return "its bytes are not in one piece of a file in this form"
    if reader.source not in mapped:
        return "the file is small, or not mapped"
    alignment = max(dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize, library.alignment)
    if span.start % alignment:
        hint = f"; save with align={alignment}" if alignment > dtype.itemsize else ""
        return f"it begins at byte {span.start:,}, no multiple of {alignment}{hint}"
    return None


def _mapped(tensors: Iterable[LazyTensor]) -> set[ByteSource]:
    """Return the files that are mapped when all tensors are loaded."""
    spans: dict[ByteSource, tuple[int, int]] = {}
    for lazy in tensors:
        reader, span = lazy.reader, lazy.span
        if span is None or not isinstance(reader, TensorReader):
            continue
        source = reader.source
        if isinstance(source, LocalFile) and source.backend == "mmap":
            start, stop = spans.get(source, (span.start, span.stop))
            spans[source] = min(start, span.start), max(stop, span.stop)
    return {source for source, (start, stop) in spans.items() if stop - start >= MAPPED_FROM_NBYTES}
