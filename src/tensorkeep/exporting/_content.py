"""The tensors to write. Each remembers the digest of the bytes that it gave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tensorkeep.arrays import StreamedTensor, TensorToWrite
from tensorkeep.buffers import Buffer
from tensorkeep.digests import new_hasher
from tensorkeep.dtypes import ALL_BY_NAME, BY_NAME
from tensorkeep.tensors import LazyTensor, checked_buffers, refuse_other_bytes, stored_bytes


class WatchedTensor(TensorToWrite, frozen=True):
    """A tensor that knows the digest of its bytes once they were written.

    Attributes:
        name: Its name, for messages.
        inner: The tensor.
        digests: The digest of each pass over its bytes.
    """

    name: str
    inner: TensorToWrite
    digests: list[bytes]

    def buffers(self) -> Iterator[Buffer]:
        """Yield its bytes."""
        hasher = new_hasher()
        for buffer in checked_buffers(self.name, self.inner):
            hasher.update(buffer)
            yield buffer
        self.digests.append(hasher.digest())


def refuse_changed(tensors: Iterable[WatchedTensor]) -> None:
    """Refuse tensors that gave other bytes than they should have, such as a patch makes of a damaged base."""
    given = [tensor for tensor in tensors if tensor.digests]
    refuse_other_bytes([(each.name, each.inner) for each in given], [each.digests[-1] for each in given])


def watched(lazy: LazyTensor) -> WatchedTensor:
    """Describe a tensor of any dtype for writing."""
    inner = described(lazy)
    return WatchedTensor(inner.dtype, inner.shape, inner.nbytes, lazy.name, inner, [])


def described(lazy: LazyTensor) -> TensorToWrite:
    """Describe a tensor of any dtype for writing, also of those that safetensors lacks."""
    dtype = ALL_BY_NAME.get(lazy.dtype)
    if dtype is None or dtype.name in BY_NAME:
        return lazy.tensor_to_write()
    return StreamedTensor(dtype, lazy.shape, lazy.nbytes, lambda: stored_bytes(lazy))
