"""All bytes of one file, straight from the tensors' own memory, and their digests.

A header with digests is written twice: with zeros in their place first, and with the digests once all tensors are
written. So digests are computed while the bytes are written, and tensors whose bytes come only once (from a device,
from another file) need no second pass. The file gets its name only after that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from math import prod
from typing import TYPE_CHECKING, Literal, TypeAlias

from tensorkeep.arrays import StreamedTensor, TensorToWrite
from tensorkeep.arrays.in_memory import TensorInMemory, view_at
from tensorkeep.buffers import Buffer
from tensorkeep.collector import PausedCollector
from tensorkeep.digests import digest_of, new_hasher
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import HeaderError, IntegrityError
from tensorkeep.formats.safetensors import (
    PLAIN,
    STATE_KEY,
    Arrangement,
    emit_header,
    emit_sealed_header,
    lay_out,
    metadata_to_write,
)
from tensorkeep.limits import ARENA_NBYTES, HASHED_APART_NBYTES
from tensorkeep.parallel import Workers
from tensorkeep.tensors.readers import StoredTensor
from tensorkeep.tensors.writing._block_stream import BlockStream
from tensorkeep.tensors.writing._checked import checked_buffers
from tensorkeep.tensors.writing._digest_stream import Digesting
from tensorkeep.tensors.writing._fetched import copied_ahead, place_on_device, write_fetched
from tensorkeep.tensors.writing._sealing import Sealing
from tensorkeep.transport import Body, ByteRange, ByteSink, ByteSource, LocalFile, Spool, extends

if TYPE_CHECKING:
    from concurrent.futures import Future


_FORMAT_KEY = "format"
_FORMAT = "pt"
"""Some libraries refuse a file whose metadata lacks this; it does not mean that torch wrote it."""

_Named = tuple[str, TensorToWrite]


def metadata_with_format(metadata: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the metadata of a file that will have digests or a state."""
    return {_FORMAT_KEY: _FORMAT, **(metadata_to_write(metadata) or {})}


def plain_head(
    to_write: Mapping[str, TensorToWrite], metadata: Mapping[str, str] | None
) -> tuple[bytes, dict[str, TensorEntry]]:
    """Encode everything before the data, without digests."""
    entries = _entries(to_write)
    return emit_header(entries, metadata_to_write(metadata)), entries


def plain_buffers(to_write: Mapping[str, TensorToWrite], entries: Mapping[str, TensorEntry]) -> Iterator[Buffer]:
    """Give the data, in the order of the header."""
    return _buffers_of((name, to_write[name]) for name in entries)


def sealed_head(
    to_write: Mapping[str, TensorToWrite],
    metadata: Mapping[str, str] | None,
    *,
    state: str | None,
    sealing: Sealing,
    digests: Mapping[str, bytes] | None = None,
    arrangement: Arrangement = PLAIN,
) -> tuple[bytes, dict[str, TensorEntry]]:
    """Encode everything before the data of a file that several writers fill; zeros for unknown digests."""
    entries, metadata = _described(to_write, metadata, state, sealing, arrangement)
    in_order = None if digests is None else [digests[name] for name in entries]
    return emit_sealed_header(entries, metadata, in_order, index=sealing.index, align=arrangement.align), entries


def write_file(
    sink: ByteSink,
    to_write: Mapping[str, TensorToWrite],
    metadata: Mapping[str, str] | None = None,
    *,
    state: str | None = None,
    sealing: Sealing | None = None,
    arrangement: Arrangement = PLAIN,
    blocks: BlockStream | None = None,
) -> bytes:
    """Write a whole file, and return everything before the data; `blocks` takes the data of one with digests too."""
    encrypting = None if sealing is None else sealing.over(sink, has_blocks=blocks is not None)
    if encrypting is not None:
        plain, inner = encrypting
        write_file(plain, to_write, metadata, state=state, sealing=inner, arrangement=arrangement)
        if blocks is not None:
            blocks.tree = plain.tree
        return plain.head
    with PausedCollector():
        entries, metadata = _described(to_write, metadata, state, sealing, arrangement)
        if sealing is None:
            head = emit_header(entries, metadata, align=arrangement.align)
        else:
            head = emit_sealed_header(entries, metadata, None, index=sealing.index, align=arrangement.align)
    sink.preallocate(len(head) + sum(tensor.nbytes for tensor in to_write.values()))
    sink.write([head])
    tensors = [(name, to_write[name]) for name in entries]
    if sealing is None:
        _write_plain(sink, tensors)
    else:
        digests = _write_sealed(sink, tensors, blocks)
        if blocks is not None:
            blocks.finish(digests)
        head = emit_sealed_header(entries, metadata, digests, index=sealing.index, align=arrangement.align)
        sink.rewrite(0, head)
    return head


class FileBody(Body, frozen=True):
    """All bytes of one file, for a destination that takes them once, in order.

    Attributes:
        head: Everything before the data.
    """

    head: bytes


def file_body(
    to_write: Mapping[str, TensorToWrite],
    metadata: Mapping[str, str] | None = None,
    *,
    state: str | None = None,
    sealing: Sealing | None = None,
    arrangement: Arrangement = PLAIN,
    blocks: BlockStream | None = None,
) -> FileBody:
    """Describe a file that is written in one pass; its digests are computed now, by reading all tensors."""
    if sealing is not None and sealing.encryption is not None:  # a block is encrypted once, however often it is sent
        spool = Spool()
        head = write_file(
            spool.sink, to_write, metadata, state=state, sealing=sealing, arrangement=arrangement, blocks=blocks
        )
        return FileBody(spool.nbytes, spool.pieces, head)
    entries, metadata = _described(to_write, metadata, state, sealing, arrangement)
    if sealing is None:
        head = emit_header(entries, metadata, align=arrangement.align)
    else:
        digests = _digests(to_write, entries, blocks)
        if blocks is not None:
            blocks.finish(digests)
        head = emit_sealed_header(entries, metadata, digests, index=sealing.index, align=arrangement.align)

    def pieces() -> Iterator[Buffer]:
        yield head
        for way, group in _by_way((name, to_write[name]) for name in entries):
            yield from _buffers_of(_in_turn(way, group))

    return FileBody(len(head) + sum(tensor.nbytes for tensor in to_write.values()), pieces, head)


def _digests(
    to_write: Mapping[str, TensorToWrite], entries: Iterable[str], blocks: BlockStream | None
) -> list[bytes]:
    with Digesting() as digesting:
        for way, group in _by_way((name, to_write[name]) for name in entries):
            if way != "known":
                hashed = _hashed(digesting, _in_turn(way, group))
                deque(hashed if blocks is None else blocks.passing(hashed), maxlen=0)
                continue
            for _, tensor in group:
                if isinstance(tensor, StoredTensor) and tensor.digest is not None:
                    digesting.carry(tensor.digest)
                    if blocks is not None:
                        blocks.take_from(tensor.source, tensor.span)
        digests = digesting.digests()
    refuse_other_bytes([(name, to_write[name]) for name in entries], digests)
    return digests


def _described(
    to_write: Mapping[str, TensorToWrite],
    metadata: Mapping[str, str] | None,
    state: str | None,
    sealing: Sealing | None,
    arrangement: Arrangement,
) -> tuple[dict[str, TensorEntry], Mapping[str, str] | None]:
    """Return the entries of the header, and its metadata without the digests."""
    is_plain = state is None and sealing is None
    metadata = metadata_to_write(metadata) if is_plain else metadata_with_format(metadata)
    if state is not None:
        metadata = {**(metadata or {}), STATE_KEY: state}
    return _entries(to_write, arrangement), metadata


def _entries(to_write: Mapping[str, TensorToWrite], arrangement: Arrangement = PLAIN) -> dict[str, TensorEntry]:
    for name, tensor in to_write.items():
        if tensor.dtype.is_packed and prod(tensor.shape) * tensor.dtype.bits % 8:
            raise HeaderError(
                f"the elements of tensor `{name}` do not fill whole bytes",
                tensor=name,
                found=f"{prod(tensor.shape)} elements of {tensor.dtype.bits} bits",
            )
    places = {name: (tensor.dtype, tensor.shape, tensor.nbytes) for name, tensor in to_write.items()}
    return lay_out(places, arrangement)


def _write_plain(sink: ByteSink, tensors: list[_Named]) -> None:
    for way, group in _by_way(tensors):
        if way in {"known", "reread"}:
            _copy(sink, [tensor for _, tensor in group if isinstance(tensor, StoredTensor)])
        elif way == "fetched" and extends(sink):
            write_fetched(sink, list(group), hashes=False)
        else:
            sink.write(_buffers_of(_in_turn(way, group)))


def _write_sealed(sink: ByteSink, tensors: list[_Named], blocks: BlockStream | None) -> list[bytes]:
    """Write the data, and return the digest of each tensor."""
    with Digesting() as digesting:
        for way, group in _by_way(tensors):
            if way == "fetched" and blocks is None and extends(sink):
                for digest in write_fetched(sink, list(group), hashes=True):
                    digesting.carry(digest)
                continue
            if way in {"fetched", "passed"}:
                hashed = _hashed(digesting, _in_turn(way, group))
                sink.write(hashed if blocks is None else blocks.passing(hashed))
                continue
            stored = [tensor for _, tensor in group if isinstance(tensor, StoredTensor)]
            if blocks is not None:
                for source, span in _merged(stored):
                    blocks.take_from(source, span)
            if way == "known":
                _copy(sink, stored)
                digests = [tensor.digest or b"" for tensor in stored]
            else:
                digests = _copy_and_digest(sink, stored)
            for digest in digests:
                digesting.carry(digest)
        made = digesting.digests()
    refuse_other_bytes(tensors, made)
    return made


def refuse_other_bytes(tensors: Iterable[_Named], digests: Iterable[bytes]) -> None:
    """Refuse tensors whose bytes are not those that were promised."""
    for (name, tensor), digest in zip(tensors, digests, strict=True):
        if isinstance(tensor, StreamedTensor | StoredTensor) and tensor.digest not in {None, digest}:
            raise IntegrityError(
                f"tensor `{name}` is not what it should be",
                tensor=name,
                expected=f"BLAKE3 {(tensor.digest or b'').hex()[:16]}…",
                found=f"{digest.hex()[:16]}…",
                hint="What it is made of is damaged; `tensorkeep verify` finds where",
            )


def _hashed(digesting: Digesting, tensors: Iterable[_Named]) -> Iterator[Buffer]:
    """Give the bytes of tensors one after another, and hash them."""
    for name, tensor in tensors:
        if type(tensor) is TensorInMemory and tensor.nbytes < HASHED_APART_NBYTES:
            view = view_at(tensor.address, tensor.nbytes)
            digesting.carry(digest_of(view))
            yield view
        else:
            yield from digesting.passing(tensor.nbytes, checked_buffers(name, tensor))


_Way: TypeAlias = Literal["known", "reread", "fetched", "passed"]


def _by_way(tensors: Iterable[_Named]) -> Iterator[tuple[_Way, Iterator[_Named]]]:
    """Group tensors that follow each other and get their digests in the same way.

    Small tensors on the CPU, such as the steps of an optimizer, do not separate those of a device.
    """
    named = list(tensors)
    way_of_small: _Way = "fetched" if any(place_on_device(tensor) is not None for _, tensor in named) else "passed"
    return groupby(named, lambda each: _way_of(each[1], way_of_small))


def _in_turn(way: _Way, tensors: Iterable[_Named]) -> Iterable[_Named]:
    """Give tensors that one thread takes one after another; their device copies ahead of it."""
    return copied_ahead(tensors) if way == "fetched" else tensors


def _way_of(tensor: TensorToWrite, way_of_small: _Way) -> _Way:
    """Return how a tensor gets its digest: it has one, its file is reread, or its bytes are hashed as they pass.

    They are fetched by several threads if they come from a device.
    """
    # Reading a mapped file a second time costs little: the kernel copies its bytes, so they are in the page cache.
    if not isinstance(tensor, StoredTensor):
        if place_on_device(tensor) is not None:
            return "fetched"
        return way_of_small if tensor.nbytes < HASHED_APART_NBYTES else "passed"
    if tensor.digest is not None:
        return "known"
    is_mapped = isinstance(tensor.source, LocalFile) and tensor.source.backend == "mmap"
    return "reread" if is_mapped else "passed"


def _copy_and_digest(sink: ByteSink, stored: list[StoredTensor]) -> list[bytes]:
    """Let the kernel copy tensors, while another thread hashes them at most two batches behind."""
    made: list[bytes] = []
    waiting: deque[Future[list[bytes]]] = deque()
    thread = Workers(1, "tensorkeep-digest")
    try:
        for batch in _batches(stored):
            waiting.append(thread.submit(_digests_of, batch))
            _copy(sink, batch)
            if len(waiting) > 1:
                made += waiting.popleft().result()
        for future in waiting:
            made += future.result()
    finally:
        thread.shutdown(cancel=True)
    return made


def _batches(stored: list[StoredTensor]) -> Iterator[list[StoredTensor]]:
    begin = nbytes = 0
    for end, tensor in enumerate(stored, start=1):
        nbytes += tensor.nbytes
        if nbytes >= ARENA_NBYTES or end == len(stored):
            yield stored[begin:end]
            begin, nbytes = end, 0


def _digests_of(stored: list[StoredTensor]) -> list[bytes]:
    return [_digest_of_span(tensor.source, tensor.span) for tensor in stored]


def _digest_of_span(source: ByteSource, span: ByteRange) -> bytes:
    hasher = new_hasher()
    for piece in source.pieces(span):
        hasher.update(piece)
    return hasher.digest()


def _copy(sink: ByteSink, stored: list[StoredTensor]) -> None:
    """Copy tensors of other files, adjacent ones together."""
    for source, span in _merged(stored):
        sink.copy_from(source, span)


def _merged(stored: list[StoredTensor]) -> Iterator[tuple[ByteSource, ByteRange]]:
    source, span = stored[0].source, stored[0].span
    for tensor in stored[1:]:
        if tensor.source is source and tensor.span.start == span.stop:
            span = ByteRange(span.start, tensor.span.stop)
        else:
            yield source, span
            source, span = tensor.source, tensor.span
    yield source, span


def _buffers_of(tensors: Iterable[_Named]) -> Iterator[Buffer]:
    """Give the bytes of tensors one after another."""
    for name, tensor in tensors:
        if type(tensor) is TensorInMemory:
            yield view_at(tensor.address, tensor.nbytes)
        else:
            yield from checked_buffers(name, tensor)
