"""The files of a distributed checkpoint, and the parts of tensors in them, which are opened when they are read."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from tensorkeep.errors import HeaderError, IntegrityError, TensorkeepError, UnsupportedError
from tensorkeep.formats.pickles import PickleLimits, TensorRecord, read_pickle, short_repr
from tensorkeep.formats.safetensors import Header, read_header
from tensorkeep.kinds.base import OpenOptions
from tensorkeep.kinds.dcp._metadata import Chunk, Item
from tensorkeep.kinds.pickles import PickleFile, lazy_record, pickle_over
from tensorkeep.limits import MAX_I64
from tensorkeep.tensors import LazyTensor, TensorReader
from tensorkeep.transport import ByteRange, ByteSource, JoinedSource

SHARDING_INFO: Final = "DCP_SHARDING_INFO"
"""Metadata key under which torch records where in their tensors the pieces in a safetensors file begin."""

_ZIP: Final = b"PK\x03\x04"
_SAFETENSORS_BRACE: Final = b"\0\0{"
"""Bytes 6 to 8 of a safetensors file; the bytes before them are a length and may look like any other format."""

_HEAD_NBYTES: Final = 9


class OpenedChunk(msgspec.Struct, frozen=True, eq=False):
    """A part of a tensor that was found in its file.

    Attributes:
        lazy: The part, as a NumPy tensor.
        storage: Half-open byte range in the file that has a CRC-32 in its archive; None if there is none.
        crc: The CRC-32.
    """

    lazy: LazyTensor
    storage: ByteRange | None = None
    crc: int = 0


class ChunkFiles:
    """Files that hold parts of tensors as `torch.save` archives, or in a safetensors file at their end."""

    def __init__(self, sources: dict[str, ByteSource], limits: PickleLimits) -> None:
        self.sources = sources
        self._limits = limits
        self._readers = {file: TensorReader(source, 0, "numpy") for file, source in sources.items()}
        self._headers: dict[tuple[str, int], tuple[Header, TensorReader]] = {}
        self._opened: dict[tuple[str, Chunk], OpenedChunk] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkFiles, (self.sources, self._limits)

    def close(self) -> None:
        """Close the files."""
        for source in self.sources.values():
            source.close()

    def value(self, item: Item, options: OpenOptions) -> PickleFile:
        """Open a value that is not a tensor."""
        source = self.sources[item.file]
        _refuse_cut(source, item)
        return pickle_over(source, options, ByteRange(item.start, item.stop))

    def chunk(self, name: str, dtype: str, chunk: Chunk) -> LazyTensor:
        """Return a part of a tensor, as a NumPy tensor."""
        return self.opened(name, dtype, chunk).lazy

    def opened(self, name: str, dtype: str, chunk: Chunk) -> OpenedChunk:
        """Return a part of a tensor with its checksum, after comparing it with the declared dtype and shape."""
        found = self._opened.get((name, chunk))
        if found is None:
            try:
                found = self._open(name, chunk)
            except TensorkeepError as error:
                raise error.with_fields(path=self.sources[chunk.item.file].name, tensor=name) from None
            expected = (dtype, chunk.region.shape)
            if (found.lazy.dtype, found.lazy.shape) != expected:
                raise IntegrityError(
                    f"a part of tensor `{name}` differs from what `.metadata` declares",
                    path=self.sources[chunk.item.file].name,
                    tensor=name,
                    expected=f"{dtype} {list(chunk.region.shape)}",
                    found=f"{found.lazy.dtype} {list(found.lazy.shape)}",
                )
            self._opened[name, chunk] = found
        return found

    def _open(self, name: str, chunk: Chunk) -> OpenedChunk:
        source, item = self.sources[chunk.item.file], chunk.item
        _refuse_cut(source, item)
        head = bytes(source.read(ByteRange(item.start, min(item.start + _HEAD_NBYTES, source.nbytes))))
        if not head.startswith(_ZIP) or head[6:9] == _SAFETENSORS_BRACE:
            return self._open_in_safetensors(name, chunk)
        document = read_pickle(source, ByteRange(item.start, item.stop), limits=self._limits)
        record = document.value
        if not isinstance(record, TensorRecord) or record.storage is None:
            raise UnsupportedError(
                f"a part of `{name}` is not a dense tensor",
                found=short_repr(record),
                hint="Load it with torch and save it dense",
            )
        lazy = lazy_record(name, record, document, self._readers[item.file])
        key = record.storage.key
        if key not in document.crcs:
            return OpenedChunk(lazy)
        return OpenedChunk(lazy, document.spans[key], document.crcs[key])

    def _open_in_safetensors(self, name: str, chunk: Chunk) -> OpenedChunk:
        """Open a part in a safetensors file that starts at its place and fills the rest of the file."""
        file, start = chunk.item.file, chunk.item.start
        if (file, start) not in self._headers:
            source = self.sources[file]
            header = read_header(JoinedSource([(source, ByteRange(start, source.nbytes))], source.name))
            self._headers[file, start] = header, TensorReader(source, start + header.data_start, "numpy")
        header, reader = self._headers[file, start]
        offsets = offsets_in(header).get(name, chunk.region.starts)
        if name not in header.entries or offsets != chunk.region.starts:
            raise IntegrityError(
                f"a part of tensor `{name}` is not in its file",
                expected=str(chunk.region),
                found=f"the part from {list(offsets)} on" if name in header.entries else "none",
                hint="torch writes only one part of a tensor to a safetensors file and loses the others: save again",
            )
        return OpenedChunk(LazyTensor(name, header.entries[name], reader))


def _refuse_cut(source: ByteSource, item: Item) -> None:
    if item.stop > source.nbytes:
        raise IntegrityError(
            "the file is truncated",
            path=source.name,
            expected=f"{item.stop:,} bytes or more",
            found=f"{source.nbytes:,}",
        )


def offsets_in(header: Header) -> dict[str, tuple[int, ...]]:
    """Return where the pieces in a safetensors file begin in their tensors, as torch records it."""
    text = (header.metadata or {}).get(SHARDING_INFO)
    if text is None:
        return {}
    try:
        return {name: info.saved_offsets for name, info in _decode(text).items()}
    except msgspec.MsgspecError as error:
        raise HeaderError(f"the metadata `{SHARDING_INFO}` is malformed", found=str(error)) from None


class _Offsets(msgspec.Struct):
    saved_offsets: tuple[Annotated[int, msgspec.Meta(ge=0, le=MAX_I64)], ...]


_decode = msgspec.json.Decoder(dict[str, _Offsets]).decode
