"""Identifies one version of a remote file across processes. Pure."""

from __future__ import annotations

import msgspec

from tensorkeep.transport import Version


class VersionId(msgspec.Struct, frozen=True, omit_defaults=True):
    """A version of a remote file.

    Attributes:
        nbytes: Size in bytes.
        etag: Its ETag, or None.
        modified: Its time of last modification, or None.
        number: Its number in a store with versions, or None.
        sha256: Its SHA-256 as the server gives it, or None; `kept_sha256` finds it in the note of a file.
    """

    nbytes: int
    etag: str | None = None
    modified: str | None = None
    number: str | None = None
    sha256: str | None = None

    @classmethod
    def of(cls, version: Version) -> VersionId:
        """Return what identifies a version; the time only if nothing better does."""
        modified = None if version.modified is None or version.is_pinned else str(version.modified)
        return cls(version.nbytes, version.etag, modified, version.number, version.sha256)

    @property
    def is_unique(self) -> bool:
        """Whether no other version has this id; a size alone does not identify one."""
        return (self.etag, self.modified, self.number) != (None, None, None)
