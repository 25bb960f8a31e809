"""What is in place of a shard, if it is not what the index records: found before any header is read."""

from __future__ import annotations

from tensorkeep.errors import HeaderError
from tensorkeep.formats import SNIFF_NBYTES, LfsPointer, parse_lfs_pointer, sniff
from tensorkeep.kinds.base import Finding, OpenOptions
from tensorkeep.kinds.safetensors._file import file_over
from tensorkeep.layout import ShardRecord
from tensorkeep.transport import ByteRange, ByteSource, is_remote, kept_sha256


def misfit_of(source: ByteSource, name: str, record: ShardRecord) -> Finding | None:
    """Compare size and, if the server says it, SHA-256 of a shard with its record."""
    if source.nbytes != record.nbytes:
        head = bytes(source.read(ByteRange(0, min(SNIFF_NBYTES, source.nbytes))))
        pointer = parse_lfs_pointer(head)
        if pointer is not None:
            return _pointer_finding(pointer, name, record)
        return _size_finding(source, head, name, record)
    kept = kept_sha256(source) if record.sha256 and is_remote(source.name) else None
    if kept in {None, record.sha256}:
        return None
    message = "the server has another file than the index records"
    return Finding("sha256", message, name, expected=_shown(record.sha256), found=_shown(kept))


def _pointer_finding(pointer: LfsPointer, name: str, record: ShardRecord) -> Finding:
    found = f"{_shown(pointer.sha256)} of {pointer.nbytes:,} bytes"
    if pointer.nbytes != record.nbytes or record.sha256 not in {None, pointer.sha256}:
        expected = f"{_shown(record.sha256)} of {record.nbytes:,} bytes"
        message = "a Git LFS pointer to another file than the index records"
        return Finding("foreign", message, name, expected=expected, found=found)
    if record.sha256 is None:
        return Finding("missing", "only a Git LFS pointer is here, to a file of the right size", name, found=found)
    return Finding("pointer", "only a Git LFS pointer is here, to the file that the index records", name, found=found)


def _shown(sha256: str | None) -> str:
    return f"SHA-256 {sha256[:16]}…" if sha256 else "any SHA-256"


def _size_finding(source: ByteSource, head: bytes, name: str, record: ShardRecord) -> Finding:
    expected = f"{record.nbytes:,} bytes"
    if _is_whole(source):
        message = "the file is complete, but another save or another program wrote it"
        return Finding("foreign", message, name, expected=expected, found=f"{source.nbytes:,}")
    sniffed = sniff(head)  # what was downloaded instead, such as a page
    found = _difference(source.nbytes, record) + (f"; it is {sniffed.what}" if sniffed else "")
    return Finding("truncated", "wrong size", name, expected=expected, found=found)


def _is_whole(source: ByteSource) -> bool:
    try:
        file_over(source, OpenOptions(check=False, as_stored=True))
    except HeaderError:
        return False
    return True


def _difference(nbytes: int, record: ShardRecord) -> str:
    missing = record.nbytes - nbytes
    return f"{nbytes:,}: {missing:,} are missing at the end" if missing > 0 else f"{nbytes:,}: {-missing:,} too many"
