"""`Place`: something to open, inspected as little as possible, since each look at a server is a request."""

from __future__ import annotations

import os
from functools import cached_property

from tensorkeep.errors import AccessDeniedError, SourceMissingError
from tensorkeep.formats import SNIFF_NBYTES
from tensorkeep.transport import (
    Backend,
    ByteRange,
    ByteSource,
    Openable,
    exists,
    is_directory,
    is_remote,
    join,
    list_names,
    open_source,
    refuse_damaged_url,
    split,
)

_SAFETENSORS = ".safetensors"
_USUAL = ("model.safetensors.index.json", "model.safetensors")


class Place:
    """A path or URL, bytes or a file object, before its kind is known.

    Args:
        target: What to open.
        variant: Which checkpoint of a directory, such as `"fp16"`.
        backend: How to read local files.
        trusts_names: Whether to take a file named `.safetensors` for one without looking at its content.
    """

    def __init__(
        self,
        target: Openable,
        *,
        variant: str | None = None,
        backend: Backend = "auto",
        trusts_names: bool = True,
    ) -> None:
        self.path: str | None = os.fspath(target) if isinstance(target, str | os.PathLike) else None
        if isinstance(self.path, str):
            refuse_damaged_url(self.path)
        self.variant = variant
        self.backend = backend
        self.trusts_names = trusts_names
        self.missing: SourceMissingError | None = None
        self._target = target

    @classmethod
    def of(cls, source: ByteSource) -> Place:
        """Return the place of bytes that are open already."""
        place = cls(b"")
        place.source = source
        return place

    @cached_property
    def is_directory(self) -> bool:
        """Whether it is a directory; for a URL, whether it looks like one."""
        return self.path is not None and is_directory(self.path)

    @cached_property
    def listing(self) -> list[str] | None:
        """The sorted names in a directory; None if it is not a directory, or a server does not list it."""
        if self.path is None or not self.is_directory:
            return None
        try:
            return list_names(self.path)
        except SourceMissingError as error:
            if not is_remote(self.path):
                raise
            self.missing = error  # a URL without a suffix may also be what the names of several files begin with
            return []

    @cached_property
    def holds_safetensors(self) -> bool:
        """Whether it is a directory with a safetensors checkpoint under the usual name; asked before it is listed."""
        if self.path is None or not self.is_directory:
            return False
        if is_remote(self.path):
            return any(exists(join(self.path, name)) for name in _USUAL)
        return any(name in self.names for name in _USUAL)

    @property
    def names(self) -> list[str]:
        """The sorted names in a directory; empty if it is not a directory, or a server does not list it."""
        return self.listing or []

    @cached_property
    def source(self) -> ByteSource:
        """The bytes of a file."""
        return open_source(self._target, backend=self.backend)

    @property
    def is_known_by_name(self) -> bool:
        """Whether the name says what the file is, so that nobody looks at its content."""
        return self.is_named(".json") or (self.trusts_names and self.is_named(_SAFETENSORS))

    @cached_property
    def is_absent(self) -> bool:
        """Whether there is no file at the path; a file that is there is open from then on."""
        try:
            _ = self.source
        except (SourceMissingError, AccessDeniedError):  # buckets that may not be listed deny access to missing files
            return self.path is not None
        return False

    @cached_property
    def head(self) -> bytes:
        """The first 512 bytes of a file; empty for a directory, or if the name is trusted."""
        if self.is_directory or self.is_known_by_name:
            return b""
        return bytes(self.source.read(ByteRange(0, min(SNIFF_NBYTES, self.source.nbytes))))

    @property
    def begins_like_safetensors(self) -> bool:
        """Whether the first bytes are the length of a header that fits the file, and the start of the header."""
        return self.head[8:9] == b"{" and int.from_bytes(self.head[:8], "little") <= self.source.nbytes

    def is_named(self, *suffixes: str) -> bool:
        """Whether its name ends in one of these, ignoring case; bytes have no name."""
        return self.path is not None and split(self.path)[1].lower().endswith(suffixes)
