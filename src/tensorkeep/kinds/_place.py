"""Something that is to be opened, looked at no more often than needed: on a server, each look is a request."""

from __future__ import annotations

import os
from functools import cached_property

from tensorkeep.formats import SNIFF_NBYTES
from tensorkeep.transport import (
    Backend,
    ByteRange,
    ByteSource,
    Openable,
    is_directory,
    list_names,
    open_source,
    split,
)

_SAFETENSORS = ".safetensors"


class Place:
    """A path or URL, bytes or a file object, before it is known what they hold.

    Args:
        target: What is to be opened.
        variant: Which checkpoint of a directory, such as `"fp16"`.
        backend: How local files are read.
        trusts_names: Whether a file that is called `.safetensors` is one without a look at its content.
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
        self.variant = variant
        self.backend = backend
        self.trusts_names = trusts_names
        self._target = target

    @cached_property
    def is_directory(self) -> bool:
        """Whether it is a directory; of a URL, whether it looks like one."""
        return self.path is not None and is_directory(self.path)

    @cached_property
    def names(self) -> list[str]:
        """The names in a directory, sorted; none where it is no directory, or a server does not list what it has."""
        return (list_names(self.path) or []) if self.path is not None and self.is_directory else []

    @cached_property
    def source(self) -> ByteSource:
        """The bytes of a file."""
        return open_source(self._target, backend=self.backend)

    @cached_property
    def head(self) -> bytes:
        """The first 512 bytes of a file; none of a directory, or where the name says enough."""
        if self.is_directory or (self.trusts_names and self.is_named(_SAFETENSORS)) or self.is_named(".json"):
            return b""
        return bytes(self.source.read(ByteRange(0, min(SNIFF_NBYTES, self.source.nbytes))))

    def is_named(self, *suffixes: str) -> bool:
        """Say whether its name ends in one of these, in lower or upper case; bytes have no name."""
        return self.path is not None and split(self.path)[1].lower().endswith(suffixes)
