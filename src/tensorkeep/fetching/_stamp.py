"""By what to know one version of a remote file again, in another process. Pure."""

from __future__ import annotations

import msgspec

from tensorkeep.transport import Version


class VersionId(msgspec.Struct, frozen=True, omit_defaults=True):
    """A version of a remote file.

    Attributes:
        nbytes: Its size in bytes.
        etag: What the server calls it, or None.
        modified: When it was last changed, as the server says, or None.
        number: The number that a store with versions gives it, or None.
    """

    nbytes: int
    etag: str | None = None
    modified: str | None = None
    number: str | None = None

    @classmethod
    def of(cls, version: Version) -> VersionId:
        """Return the stamp of a version."""
        modified = None if version.modified is None or version.is_pinned else str(version.modified)
        return cls(version.nbytes, version.etag, modified, version.number)

    @property
    def is_unique(self) -> bool:
        """Whether another version would have another stamp; a size alone says nothing."""
        return (self.etag, self.modified, self.number) != (None, None, None)
