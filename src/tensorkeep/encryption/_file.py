"""The plain file in an encrypted one."""

from __future__ import annotations

from collections.abc import Mapping

from tensorkeep.encryption._cipher import stored_nbytes
from tensorkeep.encryption._content import HEADER, decrypted
from tensorkeep.encryption._encryption import Encryption
from tensorkeep.encryption._envelope import Envelope, Sealed, parse
from tensorkeep.encryption._keys import Keys
from tensorkeep.encryption._source import DecryptingSource, LockedSource
from tensorkeep.errors import FormatError, IntegrityError
from tensorkeep.formats.safetensors import ENCRYPTION_KEY, Header, parse_header
from tensorkeep.transport import ByteRange, ByteSource, JoinedSource, MemorySource


def is_encrypted(metadata: Mapping[str, str] | None) -> bool:
    """Say whether metadata in a header says that the file is encrypted."""
    return metadata is not None and ENCRYPTION_KEY in metadata


def plain_file(source: ByteSource, header: Header, keys: Keys) -> tuple[ByteSource, Encryption] | None:
    """Return the plain file as a source, and how it is encrypted; None if there is no key."""
    sealed = _sealed(source, header)
    key = keys.find(sealed.envelope.key, source.name)
    if key is None:
        return None
    head, nbytes = decrypted(sealed, key, HEADER, source.name), sealed.envelope.nbytes
    data = DecryptingSource(source, header.data_start, nbytes, key, sealed.envelope.salt_bytes)
    parts: list[tuple[ByteSource, ByteRange]] = [
        (MemorySource(head), ByteRange(0, len(head))),
        (data, ByteRange(0, nbytes)),
    ]
    return JoinedSource(parts, source.name), Encryption(key, shows_names=bool(bytes(sealed.envelope.names)))


def listed(source: ByteSource, header: Header) -> tuple[Header, ByteSource]:
    """Return what is shown of a file without its key, and a source that cannot be read."""
    envelope = _sealed(source, header).envelope
    names = bytes(envelope.names)
    locked = LockedSource(source.name, source.nbytes, envelope.key, shows_names=bool(names))
    metadata = {"encrypted": f"AES-256-GCM, key {envelope.key}"}
    if not names:
        return Header(header.entries, metadata, header.data_start), locked
    entries = parse_header(names, envelope.nbytes).entries
    return Header(entries, metadata, header.data_start), locked


def _sealed(source: ByteSource, header: Header) -> Sealed:
    """Parse the envelope of a file, and compare it with the file's only tensor."""
    sealed = parse((header.metadata or {})[ENCRYPTION_KEY], source.name)
    _check_extent(sealed.envelope, header, source.name)
    return sealed


def _check_extent(envelope: Envelope, header: Header, path: str) -> None:
    if len(header.entries) != 1:
        raise FormatError(
            "an encrypted file has one tensor", path=path, expected="1", found=f"{len(header.entries):,} tensors"
        )
    (entry,) = header.entries.values()
    expected = stored_nbytes(envelope.nbytes)
    if entry.dtype != "U8" or entry.nbytes != expected:
        raise IntegrityError(
            "the encrypted data is not complete",
            path=path,
            expected=f"{expected:,} bytes",
            found=f"{entry.nbytes:,} bytes of {entry.dtype}",
        )
