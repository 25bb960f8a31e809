"""What is signed of each file: its SHA-256, and the digest of its header if it has digests of its own tensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from tensorkeep.digests import SHA256, digest_of
from tensorkeep.errors import HeaderError, IndexFileError
from tensorkeep.formats.safetensors import read_head, read_seal
from tensorkeep.layout import Index, parse_index, stem_of_index
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.parallel import ProgressMeter, parallel_map
from tensorkeep.signing._statement import SignedFile, SignedHeader
from tensorkeep.transport import ByteRange, ByteSource, open_source, sum_of

_SAFETENSORS: Final = ".safetensors"
_MAX_THREADS: Final = 8


class Signable(msgspec.Struct, frozen=True):
    """What can be signed of some files.

    Attributes:
        files: Relative name to what is signed.
        n_recorded: Number of files whose SHA-256 an index had, so that they were not read.
    """

    files: dict[str, SignedFile]
    n_recorded: int


def signable(
    directory: str,
    names: Sequence[str],
    *,
    rehash: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Signable:
    """Return what is signed of files in a directory.

    Unless `rehash` is set, a SHA-256 that an index records is used if the index matches its own digest, and the file
    has the recorded size and header.
    """
    headers = {name: header for name in names if (header := header_of(os.path.join(directory, name)))}
    recorded = {} if rehash else dict(_recorded(directory, names, headers))
    sizes = {name: os.path.getsize(os.path.join(directory, name)) for name in names if name not in recorded}
    meter = ProgressMeter(progress, sum(sizes.values()))

    def digest(name: str) -> bytes:
        source = open_source(os.path.join(directory, name), backend="pread")
        return sum_of(source, ByteRange(0, source.nbytes), SHA256, on_read=meter.add)

    largest_first = sorted(sizes, key=lambda name: -sizes[name])
    digests = parallel_map(digest, largest_first, n_threads=min(_MAX_THREADS, os.cpu_count() or 1), meter=meter)
    sums = recorded | dict(zip(largest_first, digests, strict=True))
    files = {name: SignedFile("sha256", sums[name], headers.get(name)) for name in names}
    return Signable(files, len(recorded))


def header_of(path: str, source: ByteSource | None = None) -> SignedHeader | None:
    """Return what proves the tensors of a safetensors file; None if it has no digests, or is another file."""
    if not path.endswith(_SAFETENSORS):
        return None
    source = source or open_source(path, backend="pread")
    try:
        head, header = read_head(source)
    except HeaderError:
        return None
    if read_seal(source, header, head) is None:
        return None
    return SignedHeader(source.nbytes, digest_of(head).hex())


def _recorded(directory: str, names: Sequence[str], headers: dict[str, SignedHeader]) -> Iterator[tuple[str, bytes]]:
    """Yield the files whose SHA-256 an index records, if their headers are as that index says."""
    for name in names:
        folder, slash, file = name.rpartition("/")
        index = _index_at(os.path.join(directory, name)) if stem_of_index(file) else None
        for shard, record in (index.shards or {} if index else {}).items():
            header = headers.get(folder + slash + shard)
            if record.sha256 and header == SignedHeader(record.nbytes, record.header):
                yield folder + slash + shard, bytes.fromhex(record.sha256)


def _index_at(path: str) -> Index | None:
    """Read an index. A damaged one is an error; a file that is only named like one records nothing."""
    source = open_source(path, backend="pread")
    if source.nbytes > MAX_INDEX_NBYTES:
        return None
    try:
        return parse_index(_content(source), path)
    except IndexFileError:
        return None


def _content(source: ByteSource) -> bytes:
    return bytes(source.read(ByteRange(0, source.nbytes)))
