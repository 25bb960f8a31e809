"""Elements as NumPy has them: their bytes, whatever the dtype, and whether they are numbers."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import DtypeError
from tensorkeep.tensors.lazy._lazy import LazyTensor


def stored_bytes(lazy: LazyTensor) -> Iterator[Buffer]:
    """Yield the bytes of a tensor run by run, as NumPy has them; complex halves, which it lacks, as integers."""
    reader = lazy.reader.with_framework("numpy")
    entry = msgspec.structs.replace(lazy.entry, dtype="U32") if lazy.dtype == "C32" else lazy.entry
    length = reader.run_length(entry)
    for start in range(0, lazy.n_elements, length):
        run = reader.read_run(lazy.name, entry, start, min(start + length, lazy.n_elements))
        yield memoryview(run).cast("B")


def numeric(lazy: LazyTensor) -> LazyTensor:
    """Return a tensor whose elements NumPy or ml_dtypes has: of a quantized one, the numbers in F32."""
    if lazy.is_quantized:
        return lazy.dequantize("f32")
    dtype = ALL_BY_NAME.get(lazy.dtype)
    if dtype is None or not dtype.numpy:
        raise DtypeError(
            f"the numbers of tensor `{lazy.name}` are not known: this version does not know its dtype",
            tensor=lazy.name,
            found=lazy.dtype,
        )
    return lazy
