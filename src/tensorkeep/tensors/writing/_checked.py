"""The bytes of a tensor, and a check of their number."""

from __future__ import annotations

from collections.abc import Iterator

from tensorkeep.arrays import TensorToWrite
from tensorkeep.buffers import Buffer
from tensorkeep.errors import IntegrityError


def checked_buffers(name: str, tensor: TensorToWrite) -> Iterator[Buffer]:
    """Give the bytes of a tensor, never more than its shape says, and refuse another number of them."""
    given = 0
    for buffer in tensor.buffers():
        given += (nbytes := memoryview(buffer).nbytes)
        if given > tensor.nbytes:
            break
        if nbytes:  # an empty buffer may have a shape that nobody can cast
            yield buffer
    if given != tensor.nbytes:
        raise IntegrityError(
            f"tensor `{name}` has another number of bytes than its shape says",
            tensor=name,
            expected=f"{tensor.nbytes:,} bytes",
            found=f"{given:,}",
            hint="Do not resize tensors while they are saved",
        )
