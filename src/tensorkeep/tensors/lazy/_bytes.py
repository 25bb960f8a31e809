"""The bytes of a tensor of any dtype, also of those that safetensors lacks."""

from __future__ import annotations

from collections.abc import Iterator

from tensorkeep.buffers import Buffer
from tensorkeep.tensors.lazy._lazy import LazyTensor


def stored_bytes(lazy: LazyTensor) -> Iterator[Buffer]:
    """Yield the bytes of a tensor run by run, as NumPy has them."""
    reader = lazy.reader.with_framework("numpy")
    length = reader.run_length(lazy.entry)
    for start in range(0, lazy.n_elements, length):
        run = reader.read_run(lazy.name, lazy.entry, start, min(start + length, lazy.n_elements))
        yield memoryview(run).cast("B")
