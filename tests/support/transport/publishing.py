"""What the tests of publishing share: an old content, a new one, and a save of it."""

from __future__ import annotations

import os
from pathlib import Path

from tensorkeep.transport import publish

__all__ = ["NEW", "OLD", "names", "save"]

OLD, NEW = b"old content", b"new content, which is longer"


def save(path: str | os.PathLike[str], content: bytes = NEW, *, durable: bool = False) -> None:
    with publish(path, durable=durable) as sink:
        sink.preallocate(len(content))
        sink.write([content[:4], bytearray(content[4:])])


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))
