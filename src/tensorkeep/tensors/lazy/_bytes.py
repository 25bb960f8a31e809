"""The bytes of a tensor of any dtype, also of those that safetensors lacks."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.tensors.lazy._lazy import LazyTensor


def stored_bytes(lazy: LazyTensor) -> Iterator[Buffer]:
    """Yield the bytes of a tensor run by run, as NumPy has them; complex halves, which it lacks, as integers."""
    reader = lazy.reader.with_framework("numpy")
    entry = msgspec.structs.replace(lazy.entry, dtype="U32") if lazy.dtype == "C32" else lazy.entry
    length = reader.run_length(entry)
    for start in range(0, lazy.n_elements, length):
        run = reader.read_run(lazy.name, entry, start, min(start + length, lazy.n_elements))
        yield memoryview(run).cast("B")
