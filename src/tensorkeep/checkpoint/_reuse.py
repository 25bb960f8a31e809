"""Files of an older checkpoint that would be written again byte for byte, so that they need not be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tensorkeep.arrays import HostTensor
from tensorkeep.digests import new_hasher
from tensorkeep.errors import SourceChangedError
from tensorkeep.formats.safetensors import emit_sealed_header, metadata_to_write
from tensorkeep.tensors import StoredTensor, TensorFile
from tensorkeep.transport import ByteRange, LocalFile

__all__ = ["OlderFiles", "Reusable"]

_FORMAT: Final = {"format": "pt"}
"""What every sealed file says beside other text."""

_PARALLEL_FROM_NBYTES: Final = 2**22
"""Bytes of a tensor from which all cores make its digest."""

_Layout = frozenset[tuple[str, str, tuple[int, ...]]]
"""Name, dtype and shape of each tensor; their order in a file follows from that."""


class Reusable(msgspec.Struct, frozen=True):
    """A file that is what would be written.

    Attributes:
        source: The file, open.
        head: All that stands before its data.
    """

    source: LocalFile
    head: bytes


class OlderFiles:
    """The files of an older checkpoint, by what stands in them.

    Args:
        files: Those of the checkpoint, which stay open while this is used.
    """

    def __init__(self, files: Iterable[TensorFile]) -> None:
        """Look at their headers; see the class."""
        self._files = {
            _layout((name, entry.dtype, entry.shape) for name, entry in file.entries.items()): file
            for file in files
            if file.seal is not None
        }

    def __bool__(self) -> bool:
        """Say whether there are any."""
        return bool(self._files)

    def find(
        self, hosts: Mapping[str, HostTensor], metadata: Mapping[str, str] | None, *, index: str
    ) -> Reusable | None:
        """Return the file that is, byte for byte, what would be written; looks at no more tensors than it has to.

        Args:
            hosts: Name to description, of all tensors of the new file.
            metadata: Free text by key of the new file.
            index: Name of the index that the new file speaks of.

        Returns:
            The file; None if there is none.

        Raises:
            TransportError: If a file cannot be read.
        """
        file = self._files.get(_layout((name, host.dtype.name, host.shape) for name, host in hosts.items()))
        if file is None or file.seal is None or not isinstance(file.source, LocalFile):
            return None
        digests = file.seal.tensor_digests()
        said = {**_FORMAT, **(metadata_to_write(metadata) or {})}
        try:
            head = bytes(file.source.read(ByteRange(0, file.data_start)))
        except SourceChangedError:  # cut off by somebody
            return None
        if emit_sealed_header(file.entries, said, digests, index=index) != head:
            return None
        tensors = sorted(zip(file.entries, digests, strict=True), key=lambda tensor: _cost(hosts[tensor[0]]))
        is_same = all(_has_digest(hosts[name], digest) for name, digest in tensors)
        return Reusable(file.source, head) if is_same else None


def _layout(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> _Layout:
    return frozenset(tensors)


def _known_digest(host: HostTensor) -> bytes | None:
    return host.digest if isinstance(host, StoredTensor) else None


def _cost(host: HostTensor) -> int:
    """Return the bytes to look at, so that what is cheap to look at comes first."""
    return host.nbytes if _known_digest(host) is None else 0


def _has_digest(host: HostTensor, digest: bytes) -> bool:
    known = _known_digest(host)
    if known is not None:
        return known == digest
    hasher = new_hasher(parallel=host.nbytes >= _PARALLEL_FROM_NBYTES)
    for buffer in host.buffers():
        hasher.update(buffer)
    return hasher.digest() == digest
