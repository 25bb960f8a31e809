"""The bytes of a tensor, and a check of their number."""

from __future__ import annotations

from collections.abc import Iterator

from tensorkeep.arrays import TensorToWrite
from tensorkeep.buffers import Buffer
from tensorkeep.errors import IntegrityError


def checked(name: str, tensor: TensorToWrite) -> Iterator[Buffer]:
    """Give the bytes of a tensor, and refuse another number of them in the end."""
    given = 0
    for buffer in tensor.buffers():
        given += memoryview(buffer).nbytes
        yield buffer
    if given != tensor.nbytes:
        raise IntegrityError(
            f"tensor `{name}` has another number of bytes than its shape says",
            tensor=name,
            expected=f"{tensor.nbytes:,} bytes",
            found=f"{given:,}",
            hint="Do not resize tensors while they are saved",
        )
